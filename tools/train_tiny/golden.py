"""Writes reference latents of the exported model, computed in float32 on the CPU.

    python golden.py --model ../../models/h3-tiny
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from config import DEFAULT_GEOMETRY
from evaluate import generate
from pipeline import load_model

CAPTIONS = (
    "a small red circle bounces slowly on a dark blue floor, a very low beep at each bounce",
    "A large yellow star moves quickly to the right on a black background.",
)
SEED = 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    folder = parser.parse_args().model
    device, tensors = torch.device("cpu"), {}
    adapter = folder / "adapters" / "h3-tiny-4step-diffusers.safetensors"
    for name, forwards, path in (("adapter_4", 4, adapter), ("base_8", 8, None)):
        model = load_model(folder, device, path)
        for index, text in enumerate(CAPTIONS):
            # One request at a time: no padding, no mask.
            latents, audio = generate(
                model.text_encoder, model.dit, model.tokenizer, [text], [SEED], forwards, DEFAULT_GEOMETRY, device
            )  # fmt: skip
            stem = f"caption_{index}.{name}"
            # Channel-major, as the engine hands latents out: [24, T, h, w] and [2, 32, A].
            tensors[f"{stem}.video"] = latents[0].permute(3, 0, 1, 2).contiguous()
            tensors[f"{stem}.audio"] = audio[0].view(2, -1, 32).transpose(1, 2).contiguous()
    g = DEFAULT_GEOMETRY
    metadata = {
        "captions": json.dumps(CAPTIONS),
        "seed": str(SEED),
        "width": str(g.width),
        "height": str(g.height),
        "frames": str(g.frames),
        "noise": "sglang",
    }
    path = folder / "golden" / "latents.safetensors"  # a folder of its own: it is no model component
    path.parent.mkdir(exist_ok=True)
    save_file(tensors, path, metadata=metadata)


if __name__ == "__main__":
    main()
