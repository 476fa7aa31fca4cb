"""Scores a training state before export, on the training device, and draws a contact sheet.

    python quick_evaluation.py --tokenizer ../../models/h3-tiny/tokenizer --rows base-49 base-4
"""

import argparse
import json
import os
from pathlib import Path

import torch
from PIL import Image

import tokenizer as tokenizer_files
from evaluate import ROWS, Evaluation, generate, row_parts
from lora import add_lora
from train_dit import Conditioned, load_autoencoders
from training import load

SHEET_CLIPS, SHEET_FRAMES = 16, (0, 7, 15, 22, 30, 38)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, default=Path("../../.train"))
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--sheets", action="store_true", help="draw some frames of each row's clips, too")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    autoencoders = load_autoencoders(args.state, device)
    tokenizer = tokenizer_files.load(args.tokenizer)
    evaluation = Evaluation(autoencoders, tokenizer, device, os.cpu_count())
    for name in args.rows:
        if name in ("drawn", "reconstructed"):
            row = evaluation.drawn(reconstruct=name == "reconstructed")
        else:
            kind, forwards, first_frame = row_parts(name)
            model = Conditioned()
            model.load_state_dict(load(args.state, "base"))
            if kind == "adapter":
                add_lora(model.dit)
                model.dit.load_state_dict(load(args.state, "adapter"), strict=False)
            model.to(device).eval()
            row = evaluation.generated(model.text_encoder, model.dit, forwards, 64, first_frame)
        print(name, json.dumps(row), flush=True)
        if args.sheets and name not in ("drawn", "reconstructed", "first-base-49", "first-adapter-4"):
            texts = evaluation.texts[:SHEET_CLIPS]
            latents, sound = generate(
                model.text_encoder, model.dit, tokenizer, texts, [0] * SHEET_CLIPS, forwards, evaluation.geometry, device
            )  # fmt: skip
            clips = [autoencoders.decode(*pair)[0][list(SHEET_FRAMES)] for pair in zip(latents, sound)]
            sheet = torch.cat([torch.cat(list(clip), dim=1) for clip in clips])[::2, ::2]
            Image.fromarray((sheet * 255).byte().cpu().numpy()).save(args.state / f"{name}.png")


if __name__ == "__main__":
    main()
