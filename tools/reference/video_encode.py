"""Video encoding: one tile with its inner values, pictures and clips of one and of several tiles, sampled latents.

Frames are drawn from whole numbers, as 8-bit RGB, by a formula that the C++ test repeats; the first frame of two cases is
stored to show that it does.
"""

from pathlib import Path

import torch

import micro_config as config
import micro_model
import storage
from dit import Recorder
from video_vae import PIXEL_MEAN, PIXEL_STD

ENCODE_SEED = 42

# name: (frames, height, width)
CASES = {
    "picture_64x96": (1, 64, 96),
    "picture_32x32": (1, 32, 32),
    # 2 x 3 tiles, with places where four tiles meet and columns that three tiles cover.
    "picture_288x480": (1, 288, 480),
    "clip_5_64x32": (5, 64, 32),
    "clip_22_48x64": (22, 48, 64),
    # Not of the form 17n + 5: filled up with the last frame.
    "clip_18_32x48": (18, 32, 48),
    # Two tiles in time and in the picture.
    "clip_22_32x272": (22, 32, 272),
}


def drawn_frames(frames: int, height: int, width: int) -> torch.Tensor:
    """[frames, height, width, 3] u8, whole numbers only, so that any language draws the same."""
    t = torch.arange(frames).view(-1, 1, 1, 1)
    y = torch.arange(height).view(1, -1, 1, 1)
    x = torch.arange(width).view(1, 1, -1, 1)
    c = torch.arange(3).view(1, 1, 1, -1)
    waves = (7 * x * (c + 1) + 5 * y + 11 * t * (3 - c) + (x * y) // 16) % 256
    square = ((x + 3 * t) // 24 + (y + t) // 16) % 2
    return torch.where(square == 1, waves, 255 - waves // 2).to(torch.uint8)


def to_network(frames: torch.Tensor) -> torch.Tensor:
    """[frames, height, width, 3] u8 to [1, 3, frames, height, width] as the pipeline's encode step does."""
    pixels = frames.permute(3, 0, 1, 2)[None]
    mean = torch.tensor(PIXEL_MEAN).view(1, -1, 1, 1, 1)
    std = torch.tensor(PIXEL_STD).view(1, -1, 1, 1, 1)
    return (pixels.to(torch.float32).div(255.0) - mean) / std


def normalise(latents: torch.Tensor) -> torch.Tensor:
    mean = torch.tensor(config.VIDEO_LATENTS_MEAN).view(1, -1, 1, 1, 1)
    std = torch.tensor(config.VIDEO_LATENTS_STD).view(1, -1, 1, 1, 1)
    return (latents - mean) / std


def write_goldens(golden: Path, parts: dict[str, dict]) -> None:
    from diffusers.modular_pipelines.minimax_h3.encoders import encode_vae_condition

    model = micro_model.load_video_vae(parts["video_vae"])
    tensors = {}
    for name, shape in CASES.items():
        frames = drawn_frames(*shape)
        pixels = to_network(frames)
        with torch.no_grad():
            posterior = model.encode(pixels, return_dict=False)[0]
            sampled = encode_vae_condition(
                model, frames.permute(3, 0, 1, 2)[None], PIXEL_MEAN, PIXEL_STD, ENCODE_SEED
            )
        tensors[f"{name}.latents"] = sampled[0]
        if name in ("picture_64x96", "clip_22_48x64"):
            tensors[f"{name}.mean"] = normalise(posterior.mean)[0]
            tensors[f"{name}.moments"] = posterior.parameters[0]
            tensors[f"{name}.first_frame"] = frames[0]

    # One tile by itself, with what the encoder holds on the way (channels first, as the library does).
    encoder = model.encoder
    names = {
        "conv_in": encoder.conv_in,
        "block_0": encoder.down_blocks[0].resnets[0],
        "level_0": encoder.down_blocks[0],
        "level_1": encoder.down_blocks[1],
        "block_3": encoder.down_blocks[3].resnets[0],
        "level_5": encoder.down_blocks[5],
        "conv_out": encoder.conv_out,
    }
    recorder = Recorder(names)
    tile = to_network(drawn_frames(5, 32, 32))
    with torch.no_grad():
        moments = model.quant_conv(encoder(tile))
    for name, value in recorder.close().items():
        tensors[f"tile.{name}"] = value[0]
    tensors["tile.moments"] = moments[0]
    storage.write_tensors(golden / "video_encode.safetensors", tensors)
