"""Writes reference latents of the exported model, computed in float32 on the CPU.

    python golden.py --model ../../models/h3-tiny --first-frame ../../tests/golden/h3-tiny
"""

import argparse
import json
from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import save_file

from config import DEFAULT_GEOMETRY
from evaluate import first_pictures, generate, held_out_prompts
from pipeline import load_model

CAPTIONS = (
    "a small red circle bounces slowly on a dark blue floor, a very low beep at each bounce",
    "A large yellow star moves quickly to the right on a black background.",
)
SEED = 0
FIRST_FRAME_SCENE = 5  # of the held-out ones
FIRST_FRAME_CAPTION = "The shape moves to the right."


def latents_of(model, text, forwards, picture=None):
    """(video [24, T, h, w], audio [2, 32, A]) of one request, channel-major as the engine hands latents out."""
    latents, audio = generate(
        model.text_encoder, model.dit, model.tokenizer, [text], [SEED], forwards, DEFAULT_GEOMETRY,
        torch.device("cpu"), picture, model.autoencoders,
    )  # fmt: skip
    # One request at a time: no padding, no mask.
    return latents[0].permute(3, 0, 1, 2).contiguous(), audio[0].view(2, -1, 32).transpose(1, 2).contiguous()


def write_first_frame(folder: Path, model) -> None:
    """A picture, and latents of a clip that begins with it."""
    scenes = held_out_prompts()[0][FIRST_FRAME_SCENE : FIRST_FRAME_SCENE + 1]
    picture = first_pictures(scenes, DEFAULT_GEOMETRY)
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray((picture[0] * 255).round().byte().numpy()).save(folder / "first_frame.png")
    video, audio = latents_of(model, FIRST_FRAME_CAPTION, 4, picture)
    metadata = {"caption": FIRST_FRAME_CAPTION, "seed": str(SEED), "noise": "sglang"}
    tensors = {"adapter_4.video": video, "adapter_4.audio": audio}
    save_file(tensors, folder / "first_frame.safetensors", metadata=metadata)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--first-frame", type=Path, help="folder for a clip that begins with a picture")
    args = parser.parse_args()
    folder = args.model
    device, tensors = torch.device("cpu"), {}
    adapter = folder / "adapters" / "h3-tiny-4step-diffusers.safetensors"
    for name, forwards, path in (("adapter_4", 4, adapter), ("base_8", 8, None)):
        model = load_model(folder, device, path)
        for index, text in enumerate(CAPTIONS):
            stem = f"caption_{index}.{name}"
            tensors[f"{stem}.video"], tensors[f"{stem}.audio"] = latents_of(model, text, forwards)
        if name == "adapter_4" and args.first_frame:
            write_first_frame(args.first_frame, model)
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
