"""Makes tests/golden: the micro model in both layouts and the golden tensors of every stage.

    python make_goldens.py [--golden DIR] [--stage NAME ...]

The random weights depend on nothing but the seeds in micro_config.py, so a run gives the files that are committed.
"""

import argparse
import shutil
import time
import warnings
from pathlib import Path

import diffusers
import torch
import transformers

import audio_encode
import audio_vae
import conditions
import dit
import micro_model
import noise
import packing
import pictures
import pipeline
import resize
import schedule
import text_encoder
import tokenizer
import video_encode
import video_vae
import vision_tower

OFFICIAL = "h3-micro"
DIFFUSERS = "h3-micro-diffusers"
STAGES = (
    "model", "tokenizer", "noise", "schedule", "packing", "text_encoder", "dit", "video_vae", "audio_vae", "pipeline",
    "resize", "pictures", "vision", "video_encode", "audio_encode", "conditions"
)  # fmt: skip


def main() -> None:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--golden", type=Path, default=here.parents[1] / "tests/golden", help="output folder")
    parser.add_argument("--stage", choices=STAGES, action="append", help="only this stage; may be repeated")
    arguments = parser.parse_args()
    golden = arguments.golden
    stages = arguments.stage or STAGES
    # One thread makes the order of every sum, and so the last bit of every value, reproducible.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    # The audio VAE of the library uses the older weight norm on purpose, because its files do.
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.nn.utils.weight_norm")
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()

    vocabulary, merges = tokenizer.train(here / "corpus.txt")
    encoder_config = micro_model.text_encoder_config(tokenizer.token_ids(vocabulary), tokenizer.EMBEDDING_ROWS)
    parts = {
        "transformer": micro_model.transformer_tensors(),
        "text_encoder": micro_model.text_encoder_tensors(encoder_config),
        "video_vae": micro_model.video_vae_tensors(),
        "audio_vae": micro_model.audio_vae_tensors(),
    }

    def write_model() -> None:
        for folder in (OFFICIAL, DIFFUSERS):
            shutil.rmtree(golden / folder, ignore_errors=True)
        micro_model.write_official(golden / OFFICIAL, parts, encoder_config)
        micro_model.write_diffusers(golden / DIFFUSERS, parts, OFFICIAL)
        tokenizer.write_tokenizer(golden / OFFICIAL / "tokenizer", vocabulary, merges, merges_as_pairs=False)
        tokenizer.write_tokenizer(golden / DIFFUSERS / "tokenizer", vocabulary, merges, merges_as_pairs=True)
        micro_model.check_round_trips(golden, OFFICIAL, DIFFUSERS, parts)

    def write_tokenizer_cases() -> None:
        reader = tokenizer.load(golden / OFFICIAL / "tokenizer")
        other = tokenizer.load(golden / DIFFUSERS / "tokenizer")
        if tokenizer.cases(reader) != tokenizer.cases(other):
            raise AssertionError("the two spellings of the merges give different ids")
        tokenizer.write_cases(golden / "tokenizer_cases.json", reader, with_texts=True)

    makers = {
        "model": write_model,
        "tokenizer": write_tokenizer_cases,
        "noise": lambda: noise.write_goldens(golden),
        "schedule": lambda: schedule.write_goldens(golden),
        "packing": lambda: packing.write_goldens(golden),
        "text_encoder": lambda: text_encoder.write_goldens(golden, golden / OFFICIAL),
        "dit": lambda: dit.write_goldens(golden, parts),
        "video_vae": lambda: video_vae.write_goldens(golden, parts),
        "audio_vae": lambda: audio_vae.write_goldens(golden, parts),
        "vision": lambda: vision_tower.write_goldens(golden, golden / OFFICIAL),
        "video_encode": lambda: video_encode.write_goldens(golden, parts),
        "audio_encode": lambda: audio_encode.write_goldens(golden, parts),
        "pipeline": lambda: pipeline.write_goldens(golden, golden / OFFICIAL, parts),
        "conditions": lambda: conditions.write_goldens(golden, golden / OFFICIAL, parts),
        "resize": lambda: resize.write_goldens(golden),
        "pictures": lambda: pictures.write_goldens(golden),
    }
    golden.mkdir(parents=True, exist_ok=True)
    for stage in STAGES:
        if stage in stages:
            start = time.monotonic()
            makers[stage]()
            print(f"{stage:14s} {time.monotonic() - start:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
