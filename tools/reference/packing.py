"""The packed sequence: row order, positions, tags, row indices and the timestep of each row."""

from pathlib import Path

import torch
from diffusers.modular_pipelines.minimax_h3 import (
    MiniMaxH3AudioReference,
    MiniMaxH3ImageReference,
    MiniMaxH3VideoReference,
)
from diffusers.modular_pipelines.minimax_h3.before_denoise import (
    MiniMaxH3PrepareLayoutStep,
    MiniMaxH3Ref2VAPrepareLayoutStep,
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
# Mixes of references. name: (text tags, frames, pixel height, pixel width, references in order).
# A reference: ("image", latent height, latent width), ("video", latent frames, latent height, latent width, audio
# latents of its soundtrack or 0) or ("audio", audio latents).
REFERENCE_LAYOUTS = {
    "ref2va_image": ([1, 0, 0, 1], 5, 64, 96, (("image", 4, 8),)),
    "ref2va_nine_images": ([1] * 2, 5, 32, 64, tuple(("image", 2 + 2 * (i % 3), 4) for i in range(9))),
    "ref2va_silent_video": ([1, 0, 1], 22, 64, 64, (("video", 7, 4, 4, 0),)),
    "ref2va_video_long_sound": ([1, 0, 1], 5, 64, 96, (("video", 2, 4, 4, 9),)),
    "ref2va_video_short_sound": ([1, 0, 1], 5, 64, 96, (("video", 7, 6, 4, 3),)),
    "ref2va_spec": ([1] * 4, 5, 96, 64, (("image", 4, 8), ("video", 2, 4, 4, 9), ("audio", 5))),
    "ref2va_sound_first": ([1] * 3, 5, 64, 64, (("audio", 8), ("image", 6, 4))),
    "ref2va_image_first": ([1] * 3, 5, 64, 64, (("image", 6, 4), ("audio", 8))),
    "ref2va_three_sounds": ([1] * 2, 5, 32, 96, (("audio", 1), ("image", 4, 4), ("audio", 7), ("audio", 2))),
    "ref2va_three_videos": (
        [0] * 5,
        39,
        64,
        96,
        (("video", 12, 4, 6, 65), ("video", 2, 2, 4, 0), ("video", 7, 4, 2, 37)),
    ),
    "ref2va_twelve": (
        [1, 0, 0, 1, 1],
        22,
        64,
        64,
        tuple(("image", 2, 2 + 2 * i) for i in range(6))
        + (("video", 7, 4, 4, 37), ("audio", 9), ("video", 2, 4, 6, 0), ("audio", 37), ("image", 6, 2), ("audio", 1)),
    ),
}
# Too long to store whole: rows at a stride. References of 17 and more latent frames are where the two orders of
# summation of the reference begin to differ.
RELEASED_REFERENCES = (
    [1] * 31,
    124,
    768,
    1344,
    (("image", 128, 228), ("video", 37, 48, 84, 207), ("audio", 207), ("video", 22, 84, 48, 0)),
)
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


def build_references(text_tags, frames: int, height: int, width: int, references) -> dict[str, torch.Tensor]:
    """The layout of a request with references; their media are empty, only the sizes of their latents are read."""
    described, visual, sound = [], [], []
    for kind, *sizes in references:
        if kind == "image":
            described.append(MiniMaxH3ImageReference(image=None))
            visual.append(torch.empty(1, config.VIDEO_LATENT_CHANNELS, 1, *sizes))
        elif kind == "video":
            audio_latents = sizes.pop()
            soundtrack = torch.empty(2, 800 * audio_latents) if audio_latents else None
            described.append(MiniMaxH3VideoReference(frames=None, audio=soundtrack))
            visual.append(torch.empty(1, config.VIDEO_LATENT_CHANNELS, *sizes))
            if audio_latents:
                sound.append(torch.empty(2 * audio_latents, config.AUDIO_LATENT_CHANNELS))
        else:
            described.append(MiniMaxH3AudioReference(audio=torch.empty(2, 800 * sizes[0])))
            sound.append(torch.empty(2 * sizes[0], config.AUDIO_LATENT_CHANNELS))
    names = ("position_ids", "token_tags", "video_indices", "audio_indices", "text_indices")
    built = MiniMaxH3Ref2VAPrepareLayoutStep.build_ref2va_packed_sequence(
        torch.tensor(text_tags),
        described,
        visual,
        sound,
        video_latent_num_frames(frames, 17, 5),
        height // 16,
        width // 16,
        audio_latent_num_frames(frames),
        PATCH_SIZE,
        2,
        AUDIO_TAG,
        VIDEO_TAG,
    )
    layout = dict(zip(names, built))
    layout["num_condition_rows"] = torch.tensor([built[5], built[6]])
    return layout


def sampled_layout(layout: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    rows = layout["position_ids"].shape[0]
    positions = torch.unique(torch.cat([torch.arange(0, rows, RELEASED_STRIDE), torch.tensor([rows - 1])]))
    return {
        "rows": positions,
        "num_rows": torch.tensor([rows]),
        "position_ids": layout["position_ids"][positions],
        "token_tags": layout["token_tags"][positions],
    }


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
    layouts = {name: build(*arguments) for name, arguments in LAYOUTS.items()}
    layouts |= {name: build_references(*arguments) for name, arguments in REFERENCE_LAYOUTS.items()}
    for name, layout in layouts.items():
        tensors |= {f"{name}.{key}": value for key, value in layout.items()}
        for index, pair in enumerate(TIMESTEP_PAIRS):
            distinct, indices = row_timesteps(layout, *pair)
            tensors[f"{name}.pair_{index}.timesteps"] = distinct
            tensors[f"{name}.pair_{index}.timestep_indices"] = indices
    for name, layout in (
        ("t2va_released", build(*RELEASED_LAYOUT)),
        ("ref2va_released", build_references(*RELEASED_REFERENCES)),
    ):
        tensors |= {f"{name}.{key}": value for key, value in sampled_layout(layout).items()}
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
