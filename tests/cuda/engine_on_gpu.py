#!/usr/bin/env python3
"""engine_on_gpu.py PROGRAM MODEL OUT: whole requests of h3-tiny on the GPU against the CPU.

Runs `miniacc generate` on both devices and compares clean latents by ||gpu - cpu|| / ||cpu||:
f32 and bf16 have bounds, int8 is reported. The same request twice must give the same bits, and so
must a request whose card holds less memory. A table comes last; exit status 1 when a bound is missed.
Needs numpy and safetensors.
"""

import subprocess
import sys
import time
from pathlib import Path

import numpy
from safetensors.numpy import load_file

CAPTION = "a large red square moves right slowly on a dark blue background, with a steady tone"
SIZE = ["-W", "192", "-H", "128", "--frames", "39"]
# name, flags of the GPU run, largest relative error against the CPU in f32 (None: reported only)
RUNS = (
    ("f32", ["--precision", "f32"], 1e-4),
    ("bf16", ["--precision", "bf16"], 2e-2),
    ("int8", ["--precision", "int8"], None),
)


def generate(program, model, out: Path, name: str, flags) -> tuple[dict, float]:
    latents = out / f"{name}.safetensors"
    command = [
        program, "generate", "-m", model, "-p", CAPTION, *SIZE, "--seed", "3", "--steps", "8",
        "--overwrite", "--save-latents", str(latents), "-o", str(out / f"{name}.mp4"), *flags,
    ]  # fmt: skip
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.monotonic() - start
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return load_file(latents), seconds


def distance(a: dict, b: dict) -> dict:
    return {
        name: float(
            numpy.linalg.norm(a[name].astype(numpy.float64) - b[name]) / numpy.linalg.norm(b[name].astype(numpy.float64))
        )
        for name in sorted(b)
    }


def same_bits(a: dict, b: dict) -> bool:
    return all(a[name].tobytes() == b[name].tobytes() for name in b) and a.keys() == b.keys()


def main():
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    program, model, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    out.mkdir(parents=True, exist_ok=True)
    reference, seconds = generate(program, model, out, "cpu-f32", ["--device", "cpu"])
    rows, failed = [f"{'cpu f32':<22} {seconds:6.1f} s"], False
    for name, flags, bound in RUNS:
        result, seconds = generate(program, model, out, f"cuda-{name}", ["--device", "cuda", *flags])
        errors = distance(result, reference)
        worst = max(errors.values())
        good = numpy.isfinite(worst) and (bound is None or worst <= bound)
        text = ", ".join(f"{key} {value:.2e}" for key, value in errors.items())
        verdict = "reported" if bound is None else f"bound {bound:.0e} {'ok' if good else 'MISSED'}"
        rows.append(f"{'cuda ' + name:<22} {seconds:6.1f} s  {text}  ({verdict})")
        again, _ = generate(program, model, out, f"cuda-{name}-again", ["--device", "cuda", *flags])
        twice = same_bits(result, again)
        small, _ = generate(program, model, out, f"cuda-{name}-small", ["--device", "cuda", "--vram", "256MiB", *flags])
        resident = same_bits(result, small)
        rows.append(f"{'':<22} twice the same bits: {twice}; in 256 MiB the same bits: {resident}")
        failed = failed or not (good and twice and resident)
    print("\n".join(rows))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
