"""Writes the training state of an exported model: the inverse of `export.py`, within bfloat16.

    python restore.py --model ../../models/h3-tiny --state ../../.train

Training goes on from it (`--resume`); the optimisers' moments start anew.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from train_dit import FLOAT32_BASE
from training import save

TEXT_PREFIX = "model.language_model."
PICTURE_EMBEDDING = "model.visual.merger.linear_fc2.bias"
DECODER_ONLY_IN_FILE = "decoder.mask_token"


def statistics(folder: Path) -> dict:
    config = json.loads((folder / "config.json").read_text())
    return {key: torch.tensor(config[key]) for key in ("latents_mean", "latents_std")}


def restore_video_vae(folder: Path) -> dict:
    state = load_file(folder / "source" / "model.safetensors")
    state.pop(DECODER_ONLY_IN_FILE)
    return state | statistics(folder)


def restore_audio_vae(folder: Path) -> dict:
    state = load_file(folder / "model.safetensors")
    return {k: v for k, v in state.items() if not k.endswith(".filter")} | statistics(folder)


def restore_base(model: Path) -> dict:
    shard = "model-00001-of-00001.safetensors"
    dit = load_file(model / "transformer" / shard)
    text = load_file(model / "text_encoder" / shard)
    state = {f"dit.{name}": tensor for name, tensor in dit.items()}
    embedding = text[PICTURE_EMBEDDING]
    if not embedding.any():  # a tower that was never trained: start like any other token
        embedding = torch.randn(embedding.shape, generator=torch.Generator().manual_seed(0))
    state["text_encoder.picture_embedding"] = embedding
    for name, tensor in text.items():
        if name.startswith(TEXT_PREFIX):
            state[f"text_encoder.{name.removeprefix(TEXT_PREFIX)}"] = tensor
    return state


# bfloat16 is all there is of the rest.
FLOAT32 = {"video_vae": ("latents_",), "audio_vae": ("latents_",), "base": FLOAT32_BASE}
PARTS = {
    "video_vae": lambda model: restore_video_vae(model / "video_vae"),
    "audio_vae": lambda model: restore_audio_vae(model / "audio_vae"),
    "base": restore_base,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--state", type=Path, default=Path("../../.train"))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    args = parser.parse_args()
    for part in args.only:
        save(PARTS[part](args.model), args.state, part, float32=FLOAT32[part])


if __name__ == "__main__":
    main()
