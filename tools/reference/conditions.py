"""Requests with keyframes and with references, from files to latents, by the reference's own pipeline blocks.

Pictures, frames and sounds are made by integer formulas that the tests repeat, so that no media is stored. The
normalisation sizes (768, 2048 in the released model) are configurations of the reference's blocks and small here.
"""

import logging
from pathlib import Path

import numpy as np
import torch
from diffusers import MiniMaxH3Scheduler
from diffusers.image_processor import VaeImageProcessor
from diffusers.modular_pipelines.minimax_h3 import (
    MiniMaxH3AudioReference,
    MiniMaxH3ImageReference,
    MiniMaxH3VideoReference,
)
from diffusers.modular_pipelines.minimax_h3.before_encoder import MiniMaxH3Ref2VASetupStep, MiniMaxH3ResizeStep
from diffusers.modular_pipelines.minimax_h3.encoders import (
    MiniMaxH3FL2VATextEncoderStep,
    MiniMaxH3KeyframeVaeEncoderStep,
    MiniMaxH3Ref2VAReferenceEncoderStep,
    MiniMaxH3Ref2VATextEncoderStep,
)
from diffusers.modular_pipelines.minimax_h3.modular_blocks_minimax_h3 import (
    MiniMaxH3FL2VACoreDenoiseStep,
    MiniMaxH3Ref2VACoreDenoiseStep,
)
from diffusers.modular_pipelines.modular_pipeline import SequentialPipelineBlocks
from PIL import Image

import micro_config as config
import micro_model
import noise
import packing
import pipeline as text_pipeline
import storage
import text_encoder
import tokenizer as micro_tokenizer
import vision_tower

PROMPT = "The fox of <Picture 1> walks, <d>snow falls</d>."
SEED = 77
HEIGHT, WIDTH, FRAMES = 64, 96, 22
GRID_POINTS = 4  # three forwards
CANVAS_SHORT_EDGE, CANVAS_MAX_PIXELS, REFERENCE_SHORT_EDGE = 64, 64 * 96, 96


def picture(width: int, height: int, number: int) -> np.ndarray:
    """[height, width, 3] bytes; `number` tells pictures apart."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    return ((3 * x + 5 * y + 60 * c + 31 * number + x * y // 16) % 256).astype(np.uint8)


def video(width: int, height: int, frames: int, number: int) -> np.ndarray:
    return np.stack([picture(width, height, number + frame) for frame in range(frames)])


def sound(samples: int, number: int) -> torch.Tensor:
    """[2, samples], multiples of 1/2048."""
    t = torch.arange(samples)
    sides = [(t * (37 + 11 * side + number)) % 2001 - 1000 for side in range(2)]
    return torch.stack(sides).float() / 2048.0


class KeyframesToVideo(SequentialPipelineBlocks):
    model_name = "minimax-h3"
    block_classes = [
        MiniMaxH3ResizeStep,
        MiniMaxH3FL2VATextEncoderStep,
        MiniMaxH3KeyframeVaeEncoderStep,
        MiniMaxH3FL2VACoreDenoiseStep,
    ]
    block_names = ["resize", "text_encoder", "vae_encoder", "denoise"]


class ReferencesToVideo(SequentialPipelineBlocks):
    model_name = "minimax-h3"
    block_classes = [
        MiniMaxH3Ref2VASetupStep,
        MiniMaxH3Ref2VATextEncoderStep,
        MiniMaxH3Ref2VAReferenceEncoderStep,
        MiniMaxH3Ref2VACoreDenoiseStep,
    ]
    block_names = ["setup", "text_encoder", "vae_encoder", "denoise"]


# name: (first, last) pictures as (width, height, number) or None
KEYFRAMES = {
    "first": ((100, 60, 1), None),
    "last": (None, (90, 70, 2)),
    "both": ((100, 60, 1), (90, 70, 2)),
}
REFERENCES = {
    "mixed": (("image", 70, 50, 3), ("video", 80, 64, 30, 4, 40000), ("audio", 20001, 5)),
    "sound_first": (("audio", 9000, 6), ("video", 64, 72, 15, 7, 0), ("image", 64, 64, 8), ("image", 40, 100, 9)),
}
# Each condition and each draw order is in at least one of them.
STORED_ORDERS = {
    "first": ("sglang",),
    "last": ("sglang",),
    "both": ("sglang", "diffusers"),
    "mixed": noise.ORDERS,
    "sound_first": ("sglang", "diffusers"),
}
EMBEDS_STRIDE = 3  # rows of the hidden state that are kept


def make_reference(kind: str, *sizes):
    if kind == "image":
        return MiniMaxH3ImageReference(image=Image.fromarray(picture(*sizes)))
    if kind == "audio":
        return MiniMaxH3AudioReference(audio=sound(*sizes))
    width, height, frames, number, samples = sizes
    return MiniMaxH3VideoReference(
        frames=video(width, height, frames, number), audio=sound(samples, number) if samples else None
    )


def condition_noise(order: str, shapes: list[torch.Size], latent_frames: int) -> list[torch.Tensor]:
    """Noise rows of visual conditions in the draw orders that are not the library's (spec model.md 5.5)."""
    rows = []
    for _, channels, frames, height, width in shapes:
        generator = torch.Generator().manual_seed(SEED)
        if order == "comfy":
            rows.append(torch.randn((frames * height * width // 4, 4 * channels), generator=generator))
        else:
            drawn = torch.randn((1, channels, latent_frames + len(shapes), height, width), generator=generator)
            rows.append(packing.patchify_video_latents(drawn[:, :, :frames], packing.PATCH_SIZE))
    return rows


def own_loop(transformer, state, order: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The denoising of a finished state written out, with the noise of `order`; returns target rows."""
    layout = {key: state.get(key) for key in ("token_tags", "position_ids", "video_indices", "audio_indices", "text_indices")}
    layout["num_condition_rows"] = (state.get("num_condition_video_rows"), state.get("num_condition_audio_rows"))
    latents = state.get("condition_latents")
    sizes = {key: state.get(key) for key in ("num_latent_frames", "latent_height", "latent_width", "num_audio_latents")}
    generator = torch.Generator().manual_seed(SEED)
    if order == "diffusers":
        noises = [
            packing.patchify_video_latents(torch.randn(clean.shape, generator=generator), packing.PATCH_SIZE)
            for clean in latents
        ]
        shape = (1, noise.VIDEO_CHANNELS, sizes["num_latent_frames"], sizes["latent_height"], sizes["latent_width"])
        target = torch.randn(shape, generator=generator)
        audio_target = torch.randn((2 * sizes["num_audio_latents"], noise.AUDIO_CHANNELS), generator=generator)
    else:
        noises = condition_noise(order, [clean.shape for clean in latents], sizes["num_latent_frames"])
        target, audio = noise.draw(order, SEED, **sizes)
        audio_target = audio.permute(0, 2, 1).reshape(-1, audio.shape[1])
    timestep = torch.tensor(packing.CONDITION_TIMESTEP)
    conditions = [
        timestep * packing.patchify_video_latents(clean, packing.PATCH_SIZE) + (1.0 - timestep) * drawn
        for clean, drawn in zip(latents, noises)
    ]
    rows = torch.cat([*conditions, packing.patchify_video_latents(target, packing.PATCH_SIZE)])
    audio_rows = torch.cat([*(state.get("audio_condition_latents") or []), audio_target])
    video_conditions, audio_conditions = layout["num_condition_rows"]
    scheduler, audio_scheduler = MiniMaxH3Scheduler(shift=12.0), MiniMaxH3Scheduler(shift=3.0)
    scheduler.set_timesteps(GRID_POINTS)
    audio_scheduler.set_timesteps(GRID_POINTS)
    for video_time, audio_time in zip(scheduler.timesteps, audio_scheduler.timesteps):
        timesteps, timestep_indices = packing.row_timesteps(layout, float(video_time), float(audio_time))
        velocity, audio_velocity = transformer(
            hidden_states=rows[None],
            audio_hidden_states=audio_rows[None],
            encoder_hidden_states=state.get("prompt_embeds"),
            timestep=timesteps,
            timestep_indices=timestep_indices,
            return_dict=False,
            **{key: value for key, value in layout.items() if key != "num_condition_rows"},
        )
        rows[video_conditions:] = scheduler.step(
            velocity[0, video_conditions:], video_time, rows[video_conditions:], return_dict=False
        )[0]
        audio_rows[audio_conditions:] = audio_scheduler.step(
            audio_velocity[0, audio_conditions:], audio_time, audio_rows[audio_conditions:], return_dict=False
        )[0]
    return rows[video_conditions:], audio_rows[audio_conditions:]


def target_latents(state, rows: torch.Tensor, audio_rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    frames, height, width = (state.get(key) for key in ("num_latent_frames", "latent_height", "latent_width"))
    patches = rows.reshape(frames, height // 2, width // 2, noise.VIDEO_CHANNELS, 2, 2)
    latents = patches.permute(3, 0, 1, 4, 2, 5).reshape(noise.VIDEO_CHANNELS, frames, height, width)
    audio = audio_rows.reshape(2, state.get("num_audio_latents"), noise.AUDIO_CHANNELS).permute(0, 2, 1)
    return latents, audio


def write_goldens(golden: Path, official: Path, parts: dict[str, dict]) -> None:
    logging.getLogger("diffusers").setLevel(logging.ERROR)
    tokenizer = micro_tokenizer.load(official / "tokenizer")
    transformer = micro_model.load_transformer(parts["transformer"])
    components = {
        "text_encoder": text_encoder.load(official / "text_encoder"),
        "tokenizer": tokenizer,
        "processor": vision_tower.processor(tokenizer),
        "image_processor": VaeImageProcessor(vae_scale_factor=16),
        "transformer": transformer,
        "transformer_ref": transformer,
        "scheduler": MiniMaxH3Scheduler(shift=12.0),
        "audio_scheduler": MiniMaxH3Scheduler(shift=3.0),
        "vae": micro_model.load_video_vae(parts["video_vae"]),
        "audio_vae": micro_model.load_audio_vae(parts["audio_vae"]),
    }
    cases = {}
    for name, (first, last) in KEYFRAMES.items():
        pictures = {
            key: Image.fromarray(picture(*value)) for key, value in (("image", first), ("last_image", last)) if value
        }
        cases[name] = (KeyframesToVideo, pictures)
    for name, references in REFERENCES.items():
        cases[name] = (ReferencesToVideo, {"references": [make_reference(*reference) for reference in references]})

    tensors = {}
    for name, (block_class, inputs) in cases.items():
        blocks = block_class()
        blocks.sub_blocks["denoise"].sub_blocks["denoise"].set_progress_bar_config(disable=True)
        pipeline = text_pipeline.make_pipeline(blocks, components)
        sizes = {
            "canvas_short_edge": CANVAS_SHORT_EDGE,
            "canvas_max_pixels": CANVAS_MAX_PIXELS,
            "reference_image_short_edge": REFERENCE_SHORT_EDGE,
        }
        pipeline.update_components(**{key: value for key, value in sizes.items() if key in pipeline.config})
        state = pipeline(
            prompt=PROMPT,
            height=HEIGHT,
            width=WIDTH,
            num_frames=FRAMES,
            num_inference_steps=GRID_POINTS,
            generator=torch.Generator().manual_seed(SEED),
            **inputs,
        )
        latents, audio_latents = state.get("latents")[0], state.get("audio_latents")
        for order in noise.ORDERS:
            with torch.no_grad():
                own = target_latents(state, *own_loop(transformer, state, order))
            if order == "diffusers":  # the library's own draws: this loop repeats them
                torch.testing.assert_close(own[0], latents, rtol=0, atol=0, msg=f"{name} video")
                torch.testing.assert_close(own[1], audio_latents, rtol=0, atol=0, msg=f"{name} audio")
            if order in STORED_ORDERS[name]:
                tensors[f"{name}.{order}.latents"], tensors[f"{name}.{order}.audio_latents"] = own
        tensors[f"{name}.text_tags"] = state.get("text_token_tags").to(torch.uint8)
        tensors[f"{name}.prompt_embeds"] = state.get("prompt_embeds")[0, ::EMBEDS_STRIDE]
        for index, clean in enumerate(state.get("condition_latents")):
            tensors[f"{name}.condition_{index}"] = clean[0]
        for index, clean in enumerate(state.get("audio_condition_latents") or []):
            tensors[f"{name}.audio_condition_{index}"] = clean.reshape(2, -1, clean.shape[1]).permute(0, 2, 1)
    storage.write_tensors(golden / "conditions.safetensors", tensors)
    request = {"prompt": PROMPT, "seed": SEED, "width": WIDTH, "height": HEIGHT, "num_frames": FRAMES}
    storage.write_json(golden / "conditions.json", request | {"num_forwards": GRID_POINTS - 1})
