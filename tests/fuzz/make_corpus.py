"""Writes the fuzzers' seed inputs: small files that reach every part of each parser, right and wrong ones.

    python tests/fuzz/make_corpus.py tests/fuzz/corpus

Needs nothing but Python. What each input is: the head of the *_fuzz.cpp files.
"""

import json
import struct
import sys
from pathlib import Path


def safetensors(header: str, data: bytes = b"") -> bytes:
    raw = header.encode()
    return struct.pack("<Q", len(raw)) + raw + data


def tensor(dtype: str, shape: list[int], begin: int, end: int) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_seeds() -> dict[str, bytes]:
    sizes = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "I16": 2,
             "I8": 1, "U8": 1, "BOOL": 1}
    header: dict = {"__metadata__": {"format": "pt"}}
    offset = 0
    for dtype, size in sizes.items():
        header[f"blocks.0.{dtype}.weight"] = tensor(dtype, [2, 1], offset, offset + 2 * size)
        offset += 2 * size
    one = json.dumps({"a": tensor("U8", [3], 0, 3)})
    index = {"metadata": {"total_size": 3}, "weight_map": {"a": "model-00001-of-00001.safetensors"}}
    return {
        "all_dtypes": safetensors(json.dumps(header), bytes(range(offset))),
        "one": safetensors(one, b"abc"),
        "empty": safetensors("{}"),
        "scalar_and_empty": safetensors(json.dumps({"s": tensor("F32", [], 0, 4), "e": tensor("F16", [0, 3], 4, 4)}),
                                        b"\0\0\x80\x3f"),
        "truncated": safetensors(one, b"ab"),
        "trailing": safetensors(one, b"abcd"),
        "overlap": safetensors(json.dumps({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 1, 3)}), b"abc"),
        "twice": safetensors('{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},'
                             '"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"a"),
        "overflow": safetensors(json.dumps({"a": tensor("F64", [2**32, 2**32], 0, 8)}), bytes(8)),
        "nested": safetensors('{"a":' + "[" * 40),
        "metadata_null": safetensors('{"__metadata__":null}'),
        "escapes": safetensors('{"\\u00e9\\ud83d\\ude00\\"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
        "index": json.dumps(index).encode(),
        "index_escape": json.dumps({"weight_map": {"a": "../x.safetensors"}}).encode(),
        "index_of_nothing": b'{"weight_map": {}}',
        "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n",
    }


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf(pairs: list[bytes], infos: list[bytes], data: bytes = b"", version: int = 3, alignment: int = 32) -> bytes:
    """Without the magic, which the fuzz target puts in front."""
    body = struct.pack("<IQQ", version, len(infos), len(pairs)) + b"".join(pairs) + b"".join(infos)
    padding = -(len(body) + 4) % alignment if infos else 0
    return body + bytes(padding) + data


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def array(kind: int, items: list[bytes]) -> bytes:
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def info(name: str, dims: list[int], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf_seeds() -> dict[str, bytes]:
    scalars = [
        pair("a.u8", 0, b"\x01"), pair("a.i8", 1, b"\xff"), pair("a.u16", 2, b"\1\2"), pair("a.i16", 3, b"\1\2"),
        pair("a.u32", 4, bytes(4)), pair("a.i32", 5, bytes(4)), pair("a.f32", 6, struct.pack("<f", 0.5)),
        pair("a.bool", 7, b"\1"), pair("a.string", 8, text("wan")), pair("a.u64", 10, bytes(8)),
        pair("a.i64", 11, bytes(8)), pair("a.f64", 12, struct.pack("<d", 0.5)),
    ]
    arrays = [
        pair("b.ints", 9, array(5, [struct.pack("<i", value) for value in (24, 20, 20)])),
        pair("b.strings", 9, array(8, [text("a"), text("bc")])),
        pair("b.nested", 9, array(9, [array(0, [b"\1"]), array(9, [array(7, [b"\0"])])])),
    ]
    # (type, values a block, bytes a block)
    kinds = [(0, 1, 4), (1, 1, 2), (2, 32, 18), (8, 32, 34), (12, 256, 144), (13, 256, 176), (14, 256, 210),
             (24, 1, 1), (25, 1, 2), (26, 1, 4), (27, 1, 8), (28, 1, 8), (30, 1, 2)]
    infos, data = [], b""
    for kind, values, size in kinds:
        infos.append(info(f"t.{kind}", [values], kind, len(data)))
        data += bytes((7 * i + kind) % 256 for i in range(size))
        data += bytes(-len(data) % 32)
    floats = bytes(32)
    shape = pair("comfy.gguf.orig_shape.w", 9, array(5, [struct.pack("<i", value) for value in (1, 2, 1, 2, 2)]))
    return {
        "scalars": gguf(scalars, []),
        "arrays": gguf(arrays, []),
        "types": gguf([], infos, data),
        "version2": gguf([], [info("w", [4, 2], 0, 0)], floats, version=2),
        "alignment": gguf([pair("general.alignment", 4, struct.pack("<I", 8))],
                          [info("w", [2], 0, 0), info("v", [2], 0, 8)], bytes(16), alignment=8),
        "orig_shape": gguf([shape], [info("w", [4, 2], 0, 0)], floats),
        "split": gguf([pair("split.count", 2, struct.pack("<H", 3))], []),
        "unsupported": gguf([], [info("w", [256], 17, 0)], bytes(96)),
        "overlap": gguf([], [info("a", [16], 0, 0), info("b", [8], 0, 32)], bytes(64)),
        "overflow": gguf([], [info("a", [2**33, 2**33], 0, 0)], bytes(32)),
        "counts": struct.pack("<IQQ", 3, 2**60, 2**60),
        "long_string": gguf([text("k") + struct.pack("<IQ", 8, 2**63)], []),
        "empty": gguf([], []),
    }


def tokenizer_seeds() -> dict[str, bytes]:
    letters = {letter: index for index, letter in enumerate("abcdeĠ")}
    vocabulary = letters | {"ab": 6, "abc": 7, "Ġa": 8}
    specials = ["<|endoftext|>", "<|im_start|>", "<|image_pad|>"]
    file = {
        "version": "1.0",
        "added_tokens": [
            {"id": 9 + index, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for index, content in enumerate(specials)
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": r"\p{L}+|\p{N}|\s+(?!\S)|\s+"}, "behavior": "Isolated",
                 "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
            ],
        },
        "post_processor": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary,
                  "merges": [["a", "b"], ["ab", "c"], ["Ġ", "a"]]},
    }
    whole = json.dumps(file, ensure_ascii=False).encode()
    old_merges = json.dumps(file | {"model": file["model"] | {"merges": ["a b", "ab c"]}}).encode()
    bad_regex = whole.replace(b"+(?!", b"+((?!")
    return {
        "plain_text": b"a cat on a mat, 1234",
        "unicode_text": "e\u0301 \u212b 漢字 한국 🧑‍🚀 \u0e01\u0e33 ﬁ".encode(),
        "special_text": b"<|im_start|>user\n<|image_pad|><|endoftext|>",
        "spaces": b"   \n\n\t a  \r\n ",
        "invalid_utf8": b"ab\xff\xc3(",
        "file": b"abc a<|endoftext|>\0" + whole,
        "old_merges": b"abc\0" + old_merges,
        "bad_regex": b"abc\0" + bad_regex,
        "truncated": b"abc\0" + whole[: len(whole) // 2],
        "no_object": b"abc\0[]",
    }


def main(folder: Path) -> None:
    for name, seeds in {"safetensors": safetensors_seeds(), "gguf": gguf_seeds(),
                        "tokenizer": tokenizer_seeds()}.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for seed, content in seeds.items():
            (folder / name / seed).write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
