"""Goldens of Pillow's 8-bit RGB resize, which diffusers and the Qwen image processor put pictures through."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from micro_config import generator_for
from storage import write_tensors

FILTERS = {"lanczos": Image.Resampling.LANCZOS, "bicubic": Image.Resampling.BICUBIC}
# Source size and the sizes it is brought to, as width x height.
CASES = {
    "noise_37x23": [(37, 23), (64, 23), (37, 9), (74, 46), (11, 7), (32, 64), (1, 1), (36, 22), (38, 24), (200, 3)],
    "edges_16x16": [(32, 32), (24, 8), (5, 40)],
    "column_1x64": [(1, 10), (3, 96), (32, 32)],
    "row_64x1": [(10, 1), (96, 3), (32, 32)],
    "pixel_1x1": [(4, 5)],
}
# A formula instead of stored pixels: the test computes the same source.
FORMULA_SIZE = (800, 450)
FORMULA_CASES = [(96, 64), (1344, 768)]
FORMULA_ROW_STRIDE = 61


def formula_picture() -> np.ndarray:
    width, height = FORMULA_SIZE
    y, x, channel = np.mgrid[0:height, 0:width, 0:3]
    return ((x * x * 7 + y * y * 13 + x * y * 3 + channel * 85) // 16 % 256).astype(np.uint8)


def sources() -> dict[str, np.ndarray]:
    pictures = {}
    for name in CASES:
        width, height = (int(side) for side in name.rsplit("_", 1)[1].split("x"))
        noise = torch.randint(0, 256, (height, width, 3), generator=generator_for(f"resize.{name}"))
        pictures[name] = noise.numpy().astype(np.uint8)
    # Black and white only: the overshoot of both filters is clamped everywhere.
    pictures["edges_16x16"] = np.where(pictures["edges_16x16"] < 128, 0, 255).astype(np.uint8)
    return pictures


def write_goldens(golden: Path) -> None:
    tensors = {}
    for name, pixels in sources().items():
        tensors[f"{name}.source"] = torch.from_numpy(pixels)
        for kind, resampling in FILTERS.items():
            for width, height in CASES[name]:
                resized = Image.fromarray(pixels).resize((width, height), resampling)
                tensors[f"{name}.{kind}.{width}x{height}"] = torch.from_numpy(np.asarray(resized).copy())
    picture = Image.fromarray(formula_picture())
    for kind, resampling in FILTERS.items():
        for width, height in FORMULA_CASES:
            rows = np.asarray(picture.resize((width, height), resampling))[::FORMULA_ROW_STRIDE]
            tensors[f"formula.{kind}.{width}x{height}.rows"] = torch.from_numpy(rows.copy())
    write_tensors(golden / "resize.safetensors", tensors)
