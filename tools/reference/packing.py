"""The packed sequence: row order, positions, tags, row indices and the timestep of each row."""

from pathlib import Path

import torch
from diffusers.modular_pipelines.minimax_h3.before_denoise import (
    MiniMaxH3PrepareLayoutStep,
    MiniMaxH3SetTimestepsStep,
    patchify_video_latents,
)
from diffusers.modular_pipelines.minimax_h3.modular_pipeline import (
    audio_latent_num_frames,
    resolve_canvas_size,
    video_latent_num_frames,
)

import micro_config as config
import storage

PATCH_SIZE = (1, 2, 2)
VIDEO_TAG, TEXT_TAG, AUDIO_TAG = 0, 1, 2
CONDITION_TIMESTEP = 0.999

# name: (text tags, frames, pixel height, pixel width, keyframe anchors)
LAYOUTS = {
    "t2va_1_row": ([TEXT_TAG], 5, 32, 32, ()),
    "t2va_wide": ([TEXT_TAG] * 3, 5, 64, 128, ()),
    "t2va_micro": ([TEXT_TAG] * 5, 22, 64, 96, ()),
    "t2va_tall": ([TEXT_TAG] * 7, 39, 96, 64, ()),
    "fl2va_both": ([TEXT_TAG, VIDEO_TAG, VIDEO_TAG, TEXT_TAG], 22, 64, 96, ("first", "last")),
    "fl2va_last": ([TEXT_TAG] * 2, 39, 64, 64, ("last",)),
}
# Too long to store whole: rows at a stride.
RELEASED_LAYOUT = ([TEXT_TAG] * 23, 124, 768, 1344, ())
RELEASED_STRIDE = 211

TIMESTEP_PAIRS = [(0.0, 0.0), (0.02702701091766357, 0.10000002384185791), (0.9995, 0.5), (0.25, 0.25)]


def build(text_tags, frames: int, height: int, width: int, anchors) -> dict[str, torch.Tensor]:
    names = ("position_ids", "token_tags", "video_indices", "audio_indices", "text_indices")
    built = MiniMaxH3PrepareLayoutStep.build_packed_sequence(
        torch.tensor(text_tags),
        video_latent_num_frames(frames, 17, 5),
        height // 16,
        width // 16,
        audio_latent_num_frames(frames),
        PATCH_SIZE,
        2,
        AUDIO_TAG,
        VIDEO_TAG,
        tuple(anchors),
    )
    layout = dict(zip(names, built))
    layout["num_condition_rows"] = torch.tensor([built[5], built[6]])
    return layout


def row_timesteps(layout: dict, video_timestep: float, audio_timestep: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Distinct timesteps in rising order, and the index of each row into them."""
    return MiniMaxH3SetTimestepsStep.build_row_timesteps(
        layout["video_indices"],
        layout["audio_indices"],
        int(layout["num_condition_rows"][0]),
        int(layout["num_condition_rows"][1]),
        layout["text_indices"].numel(),
        video_timestep,
        audio_timestep,
        max(video_timestep, CONDITION_TIMESTEP),
        1.0,
    )


def write_goldens(golden: Path) -> None:
    tensors = {}
    for name, arguments in LAYOUTS.items():
        layout = build(*arguments)
        tensors |= {f"{name}.{key}": value for key, value in layout.items()}
        for index, pair in enumerate(TIMESTEP_PAIRS):
            distinct, indices = row_timesteps(layout, *pair)
            tensors[f"{name}.pair_{index}.timesteps"] = distinct
            tensors[f"{name}.pair_{index}.timestep_indices"] = indices
    layout = build(*RELEASED_LAYOUT)
    rows = layout["position_ids"].shape[0]
    positions = torch.unique(torch.cat([torch.arange(0, rows, RELEASED_STRIDE), torch.tensor([rows - 1])]))
    tensors["t2va_released.rows"] = positions
    tensors["t2va_released.num_rows"] = torch.tensor([rows])
    tensors["t2va_released.position_ids"] = layout["position_ids"][positions]
    tensors["t2va_released.token_tags"] = layout["token_tags"][positions]
    tensors["timestep_pairs"] = torch.tensor(TIMESTEP_PAIRS, dtype=torch.float32)

    # Frame counts and canvases of the reference's own arithmetic.
    frames = torch.tensor([17 * n + 5 for n in range(22)])
    tensors["geometry.frames"] = frames
    tensors["geometry.num_latent_frames"] = torch.tensor([video_latent_num_frames(int(f), 17, 5) for f in frames])
    tensors["geometry.num_audio_latents"] = torch.tensor([audio_latent_num_frames(int(f)) for f in frames])
    ratios = [(16, 9), (9, 16), (4, 3), (3, 4), (1, 1), (3, 2), (21, 9), (5, 4), (2, 1), (4, 1), (1, 4), (1000, 1500)]
    tensors["geometry.aspect_ratios"] = torch.tensor(ratios)
    tensors["geometry.canvas_height_width"] = torch.tensor(
        [resolve_canvas_size(w, h, 32, 768, 768 * 1344) for w, h in ratios]
    )

    latents = config.normal("packing.latents", (1, 24, 2, 4, 6))
    tensors["patchify.latents"] = latents
    tensors["patchify.rows"] = patchify_video_latents(latents, PATCH_SIZE)
    storage.write_tensors(golden / "packing.safetensors", tensors)
