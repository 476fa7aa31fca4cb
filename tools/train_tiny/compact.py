"""Rounds a state of the video VAE to the exported model's bfloat16, statistics apart.

    python compact.py --state ../../.train

What is trained after it then meets the latents of the encoder that is exported, and the state is half as large.
"""

import argparse
from pathlib import Path

from training import load, save


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, default=Path("../../.train"))
    args = parser.parse_args()
    save(load(args.state, "video_vae"), args.state, "video_vae", float32=("latents_",))


if __name__ == "__main__":
    main()
