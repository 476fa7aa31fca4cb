"""Scores the engine itself on the held-out captions: `miniacc generate`, then `miniacc judge`.

    python evaluate_engine.py --program ../../build/release/bin/miniacc --model ../../models/h3-tiny \
        --rows adapter-4 base-4 base-49 --out engine.json

The captions, seeds and sizes are those of evaluate.py; rows that begin with "first" give the engine a
PNG of the first frame and a caption of its motion alone. What the judge leaves unknown counts as wrong,
as it does not show what was asked for. One caption's verdict a line in OUT.lines.jsonl; a row that was
cut short goes on where it stopped.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

from config import DEFAULT_GEOMETRY
from evaluate import LINEAR, SEEDS, first_frame_prompts, first_pictures, held_out_prompts, row_parts
from scenes import COLOURS, MOTIONS, SHAPES, SPEEDS

ROWS = ("adapter-4", "base-4", "base-49", "first-adapter-4", "first-base-49")
PITCHES = ("very low", "low", "medium", "high", "very high")


def run(words):
    result = subprocess.run(words, capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))}\n{result.stderr}")
    return result.stdout


def judge_caption(args, row, seed, text, picture):
    kind, forwards, first_frame = row_parts(row)
    with tempfile.TemporaryDirectory() as folder:
        clip = Path(folder) / "clip.mp4"
        words = [args.program, "generate", "-m", args.model, "-W", "192", "-H", "128", "--frames", "39"]
        words += ["--flow-shift", "12", "--audio-flow-shift", "3", "--steps", str(forwards), "-q", "-t", "1"]
        if kind == "adapter":
            words += ["--lora", args.model / "adapters" / "h3-tiny-4step-diffusers.safetensors"]
        if first_frame:
            Image.fromarray(picture).save(Path(folder) / "first.png")
            words += ["-i", Path(folder) / "first.png"]
        run(words + ["--seed", str(seed), "-p", text, "-o", clip])
        verdict = json.loads(run([args.program, "judge", clip, "--json"]))
    verdict["subject"].pop("track", None)
    return verdict


def summarise(scenes, verdicts):
    hits = {name: [] for name in ("colour", "shape", "direction", "motion", "speed", "pitch")}
    unknown = {name: 0 for name in hits}
    offsets, pans = [], []
    for (index, _), verdict in verdicts.items():
        subject, sound, synchrony = verdict["subject"], verdict["sound"], verdict["synchrony"]
        motion = MOTIONS[scenes.motion[index]]

        def score(name, got, wanted):
            hits[name].append(got == wanted)
            unknown[name] += got is None

        score("colour", subject.get("color"), COLOURS[scenes.colour[index]])
        score("shape", subject.get("shape"), SHAPES[scenes.shape[index]])
        score("motion", subject.get("motion"), motion)
        if motion in LINEAR:
            score("direction", subject.get("motion"), motion)
        if subject.get("motion") == motion:
            score("speed", subject.get("speed"), SPEEDS[scenes.speed[index]])
        score("pitch", sound.get("pitch"), PITCHES[scenes.shape[index]])
        if motion == "bouncing":
            offsets += synchrony.get("offsets_ms") or []
        if synchrony.get("pan_correlation") is not None and motion in ("left", "right", "circling"):
            pans.append(synchrony["pan_correlation"])
    row = {name: round(100 * sum(values) / max(1, len(values)), 1) for name, values in hits.items()}
    row["unknown"] = {name: count for name, count in unknown.items() if count}
    row["bounce_offset_ms"] = round(statistics.median(map(abs, offsets)), 1) if offsets else None
    row["bounces_measured"] = len(offsets)
    row["pan_correlation"] = round(statistics.mean(pans), 3) if pans else None
    row["clips"] = len(verdicts)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    scenes, texts = held_out_prompts()
    first_texts = first_frame_prompts()[1]
    pictures = (first_pictures(scenes, DEFAULT_GEOMETRY) * 255).round().byte().numpy()
    lines = args.out.with_suffix(".lines.jsonl")
    done = {}
    if lines.exists():
        for line in lines.read_text().splitlines():
            entry = json.loads(line)
            done[(entry["row"], entry["index"], entry["seed"])] = entry["verdict"]
    results = {}
    with lines.open("a") as file, ThreadPoolExecutor(args.jobs) as pool:
        for row in args.rows:
            wanted = [(i, s) for s in args.seeds for i in range(len(texts)) if (row, i, s) not in done]
            row_texts = first_texts if row.startswith("first") else texts
            verdicts = pool.map(
                lambda at: judge_caption(args, row, at[1], row_texts[at[0]], pictures[at[0]]), wanted
            )
            for (index, seed), verdict in zip(wanted, verdicts):
                done[(row, index, seed)] = verdict
                file.write(json.dumps({"row": row, "index": index, "seed": seed, "verdict": verdict}) + "\n")
                file.flush()
            results[row] = summarise(scenes, {(i, s): v for (r, i, s), v in done.items() if r == row})
            print(row, json.dumps(results[row]), flush=True)
    args.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
