"""Makes tests/golden/gguf/: a GGUF file of random blocks of every type MiniAcc reads, what the `gguf` package
dequantises them to, and what it quantises given values to.

    python gguf_goldens.py OUT_FOLDER

The blocks are random bytes with sensible scales, so every bit of every field is exercised.
"""

import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import save_file

SEED = 20
ROWS, COLUMNS = 3, 512

# Offsets of the f16 scales inside a block.
F16_FIELDS = {
    Type.Q8_0: [0],
    Type.Q4_0: [0],
    Type.Q4_K: [0, 2],
    Type.Q5_K: [0, 2],
    Type.Q6_K: [208],
}


def random_blocks(rng: np.random.Generator, quant: Type) -> np.ndarray:
    """ROWS x COLUMNS values as raw bytes, [ROWS, bytes of a row]."""
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[quant]
    blocks = rng.integers(0, 256, (ROWS * COLUMNS // block_size, block_bytes), dtype=np.uint8)
    for offset in F16_FIELDS[quant]:
        scales = rng.normal(0, 0.02, (len(blocks), 1)).astype(np.float16)
        blocks[:, offset : offset + 2] = scales.view(np.uint8)
    return blocks.reshape(ROWS, -1)


def add_pairs(writer: gguf.GGUFWriter) -> None:
    """One pair of every value type, plain and in arrays."""
    writer.add_uint8("test.uint8", 200)
    writer.add_int8("test.int8", -100)
    writer.add_uint16("test.uint16", 60000)
    writer.add_int16("test.int16", -30000)
    writer.add_uint32("test.uint32", 4000000000)
    writer.add_int32("test.int32", -2000000000)
    writer.add_float32("test.float32", 0.1)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "vidéo + звук")
    writer.add_uint64("test.uint64", 2**64 - 1)
    writer.add_int64("test.int64", -(2**63))
    writer.add_float64("test.float64", 1e-300)
    writer.add_array("test.array", [24, 20, 20, 0])
    writer.add_array("test.strings", ["a", "bc", ""])
    writer.add_array("test.nested", [[1, 2], [3]])
    writer.add_array("comfy.gguf.orig_shape.folded", [2, 3, 4, 2, 2])


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    writer = gguf.GGUFWriter(folder / "types.gguf", "minimax_h3")
    add_pairs(writer)
    dequantized = {}
    for quant in F16_FIELDS:
        blocks = random_blocks(rng, quant)
        name = quant.name.lower()
        writer.add_tensor(name, blocks, raw_dtype=quant)
        dequantized[name] = gguf.dequantize(blocks, quant)
    plain = rng.normal(0, 1, (2, 3, 5)).astype(np.float32)
    for name, values in {
        "f32": plain,
        "f16": plain.astype(np.float16),
        "i8": rng.integers(-128, 128, (4, 6), dtype=np.int8),
        "i32": rng.integers(-(2**20), 2**20, (7,), dtype=np.int32),
    }.items():
        writer.add_tensor(name, values)
        dequantized[name] = values.astype(np.float32)
    bf16 = gguf.quantize(plain, Type.BF16)
    writer.add_tensor("bf16", bf16, raw_dtype=Type.BF16)
    dequantized["bf16"] = gguf.dequantize(bf16, Type.BF16)
    folded = rng.normal(0, 1, (2 * 3, 4, 2, 2)).astype(np.float32)
    writer.add_tensor("folded", folded)
    dequantized["folded"] = folded.reshape(2, 3, 4, 2, 2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(dequantized, folder / "types_f32.safetensors")

    values = rng.normal(0, 1, (4, 256)).astype(np.float32)
    values[1] *= 1e-3
    values[2, :32] = 0
    values[3, 32:64] = np.abs(values[3, 32:64])
    quantized = {"values": values}
    for quant in (Type.Q8_0, Type.Q4_0, Type.BF16):
        quantized[quant.name.lower()] = np.ascontiguousarray(gguf.quantize(values, quant).view(np.uint8))
    quantized["f16"] = np.ascontiguousarray(values.astype(np.float16).view(np.uint8))
    save_file(quantized, folder / "quantized.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
