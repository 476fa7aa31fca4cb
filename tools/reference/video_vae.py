"""Video decoding: one tile with its inner values, temporal windows, spatial tiles, and the pixels they become.

Whole videos of random weights do not compress, so a video is stored as a regular sample of its pixels: every
`stride`-th row and column from the first, of the listed frames. Seams of the tiles and the cross-fades of the windows
are wider than the strides, so each of them is hit.
"""

from pathlib import Path

import torch

import micro_config as config
import micro_model
import storage
from dit import Recorder

PIXEL_MEAN = (0.485, 0.456, 0.406)
PIXEL_STD = (0.229, 0.224, 0.225)

# name: (latent [T, h, w], stride, frames or None for all)
CASES = {
    "t2_4x6": ((2, 4, 6), 5, None),
    "t7_4x6": ((7, 4, 6), 7, None),
    "t12_6x4": ((12, 6, 4), 7, None),
    "t8_2x2": ((8, 2, 2), 3, None),
    # 288 x 480 pixels: 2 x 3 tiles, with places where four tiles meet and columns that three tiles cover.
    "t7_18x30": ((7, 18, 30), 11, [0, 3, 10, 16, 17, 21]),
    "t2_17x20": ((2, 17, 20), 11, None),
}


def denormalise(latents: torch.Tensor) -> torch.Tensor:
    mean = torch.tensor(config.VIDEO_LATENTS_MEAN).view(1, -1, 1, 1, 1)
    std = torch.tensor(config.VIDEO_LATENTS_STD).view(1, -1, 1, 1, 1)
    return latents * std + mean


def decode(model, latents: torch.Tensor) -> torch.Tensor:
    """Normalised latents [1, 24, T, h, w] to network pixels [1, 3, frames, 16h, 16w].

    The library plans no window for two latent frames. As the specification asks, the last latent is then repeated up
    to one window of seven and the first five frames are kept.
    """
    latents = denormalise(latents)
    if latents.shape[2] == 2:
        latents = torch.cat([latents, latents[:, :, -1:].expand(-1, -1, 5, -1, -1)], dim=2)
        return model.decode(latents, return_dict=False)[0][:, :, :5]
    return model.decode(latents, return_dict=False)[0]


def to_unit_range(pixels: torch.Tensor) -> torch.Tensor:
    mean = torch.tensor(PIXEL_MEAN).view(1, -1, 1, 1, 1)
    std = torch.tensor(PIXEL_STD).view(1, -1, 1, 1, 1)
    return (pixels * std + mean).clamp(0, 1)


def write_goldens(golden: Path, parts: dict[str, dict]) -> None:
    model = micro_model.load_video_vae(parts["video_vae"])
    tensors = {}
    for name, ((frames, height, width), stride, kept_frames) in CASES.items():
        # Stored in half the bytes, so rounded before use.
        latents = config.normal(f"video_vae.{name}.latents", (1, config.VIDEO_LATENT_CHANNELS, frames, height, width))
        latents = latents.half().float()
        with torch.no_grad():
            pixels = decode(model, latents)[0]
        tensors[f"{name}.latents"] = latents[0].half()
        tensors[f"{name}.shape"] = torch.tensor(pixels.shape)
        tensors[f"{name}.stride"] = torch.tensor([stride])
        kept = torch.arange(pixels.shape[1]) if kept_frames is None else torch.tensor(kept_frames)
        tensors[f"{name}.frames"] = kept
        tensors[f"{name}.pixels"] = pixels[:, kept, ::stride, ::stride]
        tensors[f"{name}.mean"] = pixels.double().mean(dim=(1, 2, 3))
        tensors[f"{name}.mean_square"] = pixels.double().square().mean(dim=(1, 2, 3))
        if name == "t2_4x6":
            tensors[f"{name}.unit_pixels"] = to_unit_range(pixels[None])[0][:, kept, ::stride, ::stride]

    # One tile by itself, denormalised latents, with what the decoder holds on the way.
    tile = config.normal("video_vae.tile.latents", (1, config.VIDEO_LATENT_CHANNELS, 2, 3, 5))
    decoder = model.decoder
    recorder = Recorder(
        {
            "post_quant_conv": model.post_quant_conv,
            "block_0": decoder.transformer_blocks[0],
            "block_last": decoder.transformer_blocks[-1],
            "norm_out": decoder.norm_out,
            "proj_out": decoder.proj_out,
        }
    )
    with torch.no_grad():
        pixels = decoder(model.post_quant_conv(tile))[0]
    inner = recorder.close()
    tensors["tile.latents"] = tile[0]
    tensors["tile.post_quant_conv"] = inner["post_quant_conv"][0]
    tensors["tile.block_0"] = inner["block_0"][0]
    tensors["tile.block_last"] = inner["block_last"][0]
    tensors["tile.norm_out"] = inner["norm_out"][0]
    tensors["tile.proj_out_token_7"] = inner["proj_out"][0, 7]
    tensors["tile.pixels"] = pixels[:, :, ::3, ::3]

    # Tile starts and overlaps in pixels for every length up to the largest canvas.
    lengths = list(range(32, 2049, 32))
    for length in lengths:
        starts, _, overlaps = model._split_tiles(length, 256, 64)
        tensors[f"tiling.length_{length}.starts"] = torch.tensor(starts, dtype=torch.int32)
        tensors[f"tiling.length_{length}.overlaps"] = torch.tensor(overlaps, dtype=torch.int32)
    storage.write_tensors(golden / "video_vae.safetensors", tensors)
