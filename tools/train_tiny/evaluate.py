"""Scores held-out captions with the judge.

    python evaluate.py --model ../../models/h3-tiny --out results.json

Rows: `drawn` (the generator's own clips: what the judge itself gets wrong), `reconstructed` (the
same through the VAEs), `base-49`, `base-4` and `adapter-4` (generated; the number is forwards).
`first-base-49` and `first-adapter-4` begin with the first frame of a held-out clip, under a caption that
tells its motion and neither shape nor colour.
"""

import argparse
import json
import math
import os
import random
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from audio import soundtrack
from captions import caption, unnamed_caption
from config import DEFAULT_GEOMETRY, SAMPLE_RATE_HZ, Geometry
from dit import patchify, unpatchify
from judge import judge
from keyframes import present, request_keyframe, with_picture
from render import render
from sampler import Conditioning, euler, rope_of, seeded_keyframe_noise, seeded_noise, sigma_grids
from scenes import COLOURS, MOTIONS, SHAPES, SPEEDS, sample_scenes

CAPTIONS, SEEDS = 64, (0, 1)
SCENE_SEED = 2024
LINEAR = ("left", "right", "up", "down")
ROWS = ("drawn", "reconstructed", "base-49", "base-4", "adapter-4", "first-base-49", "first-adapter-4")


def held_out_prompts():
    scenes = sample_scenes(CAPTIONS, torch.Generator().manual_seed(SCENE_SEED), held_out=True)
    rng = random.Random(SCENE_SEED)
    return scenes, [caption(scenes, index, rng) for index in range(CAPTIONS)]


def first_frame_prompts():
    """The held-out scenes again, with captions of their motion alone."""
    scenes, _ = held_out_prompts()
    rng = random.Random(SCENE_SEED + 1)
    return scenes, [unnamed_caption(scenes, index, rng) for index in range(CAPTIONS)]


def first_pictures(scenes, geometry: Geometry):
    """[n, H, W, 3] in [0, 1]: the frames that clips begin with, in 8 bits as a file holds them."""
    return (render(scenes, geometry, 0, 1)[:, 0] * 255).round() / 255


@torch.no_grad()
def generate(
    text_encoder, dit, tokenizer, texts, seeds, forwards, geometry: Geometry, device, pictures=None, autoencoders=None
):
    """Normalised latents [n, T, h, w, 24] and audio rows [n, 2A, 32], one per text and seed pair.

    pictures: first frames [n, H, W, 3], with the autoencoders that take them.
    """
    encoded = [torch.tensor(tokenizer.encode(text).ids) for text in texts]
    lengths = torch.tensor([len(ids) for ids in encoded], device=device)
    ids = torch.nn.utils.rnn.pad_sequence(encoded, batch_first=True).to(device)
    presented, keyframe = None, None
    if pictures is not None:
        presented = present(tokenizer, geometry)
        ids, lengths = with_picture(presented, ids, lengths)
        noises = zip(*(seeded_keyframe_noise(seed, geometry) for seed in seeds))
        keyframe = request_keyframe(autoencoders, pictures, *(torch.stack(n).to(device) for n in noises))
    rope = rope_of(dit, lengths, ids.shape[1], geometry, pictures is not None)
    alike = bool((lengths == lengths[0]).all())
    condition = Conditioning(
        text_encoder, dit, ids, None if alike else lengths, rope, keyframe, presented
    )
    noise = [seeded_noise(seed, geometry) for seed in seeds]
    video = patchify(torch.stack([n[0] for n in noise])).to(device)
    audio = torch.stack([n[1] for n in noise]).to(device)
    video, audio = euler(dit, condition, video, audio, *sigma_grids(forwards))
    return unpatchify(video, geometry), audio


def judge_arrays(pair):
    torch.set_num_threads(1)
    return judge(*pair)


def summarise(scenes, verdicts) -> dict:
    """Percentages over all clips; `verdicts` holds one pass over the scenes per seed."""
    hits = {name: [] for name in ("colour", "shape", "direction", "motion", "speed", "pitch")}
    offsets, pans, missed_bounces = [], [], 0
    for number, verdict in enumerate(verdicts):
        index = number % len(scenes)
        motion, shape = MOTIONS[scenes.motion[index]], SHAPES[scenes.shape[index]]
        hits["colour"].append(verdict.colour == COLOURS[scenes.colour[index]])
        hits["shape"].append(verdict.shape == shape)
        hits["motion"].append(verdict.motion == motion)
        if motion in LINEAR:
            hits["direction"].append(verdict.motion == motion)
        if verdict.motion == motion and verdict.speed is not None:
            hits["speed"].append(verdict.speed == SPEEDS[scenes.speed[index]])
        hits["pitch"].append(verdict.pitch_shape == shape)
        if motion == "bouncing":
            offsets += verdict.bounce_offsets_ms()
            missed_bounces += not verdict.bounces_s
        if motion in ("left", "right", "circling") and verdict.pan_correlation is not None:
            pans.append(verdict.pan_correlation)
    row = {name: round(100 * sum(values) / max(1, len(values)), 1) for name, values in hits.items()}
    median = statistics.median(offsets) if offsets else math.inf
    row["bounce_offset_ms"] = round(median, 1) if math.isfinite(median) else None
    row["bounces_measured"] = len(offsets)
    row["bouncing_clips_without_bounce"] = missed_bounces
    row["pan_correlation"] = round(statistics.mean(pans), 3) if pans else None
    row["clips"] = len(verdicts)
    return row


class Evaluation:
    """Generates, decodes and judges; the judging runs in processes of its own.

    Without sound only the picture is decoded and judged, which saves half of the time on a CPU.
    """

    def __init__(self, autoencoders, tokenizer, device, workers: int, seeds=SEEDS, sound=True):
        self.autoencoders, self.tokenizer, self.device = autoencoders, tokenizer, device
        self.seeds, self.sound = seeds, sound
        self.geometry = DEFAULT_GEOMETRY
        self.scenes, self.texts = held_out_prompts()
        self.pool = ProcessPoolExecutor(workers)

    def _finish(self, pairs) -> dict:
        arrays = [(f.float().cpu().numpy(), s.float().cpu().numpy()) for f, s in pairs]
        row = summarise(self.scenes, list(self.pool.map(judge_arrays, arrays, chunksize=2)))
        if not self.sound:
            for name in ("pitch", "bounce_offset_ms", "pan_correlation"):
                del row[name]
        return row

    def _decode(self, latents, rows):
        if self.sound:
            return self.autoencoders.decode(latents, rows)
        return self.autoencoders.decode_video(latents), torch.zeros(2, SAMPLE_RATE_HZ)

    def drawn(self, reconstruct: bool) -> dict:
        pairs, errors = [], []
        for index in range(CAPTIONS):
            scene = self.scenes[index : index + 1].to(self.device)
            frames, sound = render(scene, self.geometry)[0], soundtrack(scene, self.geometry)[0]
            if reconstruct:
                video, audio = self.autoencoders.encode(scene, self.geometry)
                got, sound = self._decode(unpatchify(video, self.geometry)[0], audio[0])
                errors.append(float(-10 * (got - frames).square().mean().log10()))
                frames = got
            pairs.append((frames, sound))
        row = self._finish(pairs)
        if errors:
            row["psnr_db"] = round(statistics.mean(errors), 2)
        return row

    def generated(self, text_encoder, dit, forwards: int, batch: int, first_frame: bool = False) -> dict:
        """`batch` 1 is the exact arithmetic of a single request; larger ones pad and mask."""
        all_texts, all_pictures = self.texts, None
        if first_frame:
            all_texts = first_frame_prompts()[1]
            all_pictures = first_pictures(self.scenes.to(self.device), self.geometry)
        requests = [(text, seed, index) for seed in self.seeds for index, text in enumerate(all_texts)]
        pairs, errors = [], []
        for start in range(0, len(requests), batch):
            texts, seeds, indices = zip(*requests[start : start + batch])
            pictures = all_pictures[list(indices)] if first_frame else None
            latents, audio = generate(
                text_encoder, dit, self.tokenizer, texts, seeds, forwards, self.geometry, self.device,
                pictures, self.autoencoders,
            )  # fmt: skip
            pairs += [self._decode(*pair) for pair in zip(latents, audio)]
            if first_frame:
                for (frames, _), index in zip(pairs[start:], indices):
                    error = (frames[0].float() - all_pictures[index]).square().mean()
                    errors.append(float(-10 * error.log10()))
        row = self._finish(pairs)
        if errors:
            row["first_frame_psnr_db"] = round(statistics.mean(errors), 2)
        return row


def row_parts(name: str):
    """("base" or "adapter", forwards, whether clips begin with a picture) of a generated row."""
    kind, forwards = name.removeprefix("first-").split("-")
    return kind, int(forwards), name.startswith("first-")


def main():
    from pipeline import load_model

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=1, help="captions at once; 1 is the exact request")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--picture-only", action="store_true", help="neither decode nor judge the sound")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    args = parser.parse_args()
    device = torch.device(args.device)
    adapter = args.model / "adapters" / "h3-tiny-4step-diffusers.safetensors"
    base = load_model(args.model, device)
    evaluation = Evaluation(
        base.autoencoders, base.tokenizer, device, args.workers, args.seeds, not args.picture_only
    )
    results = json.loads(args.out.read_text()) if args.out.exists() else {}
    for name in args.rows:
        start = time.monotonic()
        if name in ("drawn", "reconstructed"):
            row = evaluation.drawn(reconstruct=name == "reconstructed")
        else:
            kind, forwards, first_frame = row_parts(name)
            model = base if kind == "base" else load_model(args.model, device, adapter)
            row = evaluation.generated(model.text_encoder, model.dit, forwards, args.batch, first_frame)
        results[name] = row
        print(name, json.dumps(row), f"{time.monotonic() - start:.0f} s", flush=True)
        args.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
