"""Audio encoding: both channels of a sound to normalised latents (the posterior's mean), with inner values."""

from pathlib import Path

import torch

import micro_config as config
import micro_model
import storage
from dit import Recorder

# name: samples per channel; 800 a latent. Lengths that need padding, one sample, and more than one piece of the trunk.
CASES = {"s1": 1, "s800": 800, "s6400": 6400, "s7001": 7001, "s123456": 123456}


def drawn_sound(samples: int) -> torch.Tensor:
    """[2, samples] in [-1, 1], from whole numbers, so that any language draws the same."""
    n = torch.arange(samples)
    left = (n * 37) % 401 + (n * n) % 211 - 305
    right = (n * 53) % 307 - (n // 7 * 29) % 331 + (n % 5) * 20
    return torch.stack([left, right]).to(torch.float32) / 512


def write_goldens(golden: Path, parts: dict[str, dict]) -> None:
    model = micro_model.load_audio_vae(parts["audio_vae"])
    mean = torch.tensor(config.AUDIO_LATENTS_MEAN).view(1, -1, 1)
    std = torch.tensor(config.AUDIO_LATENTS_STD).view(1, -1, 1)
    tensors = {}
    for name, samples in CASES.items():
        sound = drawn_sound(samples)
        block = model.encoder.block
        recorder = Recorder(
            {
                "block_0": block[0],
                "unit_1": block[1].block[1],
                "stage_1": block[1],
                "stage_5": block[5],
                "trunk": block[7],
                "attention": model.pre_block.attn,
                "mlp": model.pre_block.mlp,
                "pre_block": model.pre_block,
            }
        )
        with torch.no_grad():
            posterior = model.encode(sound[:, None], return_dict=False)[0]
        inner = recorder.close()
        tensors[f"{name}.latents"] = (posterior.mode() - mean) / std
        if name == "s800":
            tensors |= {f"{name}.{key}": value for key, value in inner.items()}
        if name == "s6400":
            tensors |= {f"{name}.{key}": inner[key] for key in ("trunk", "attention", "mlp", "pre_block")}
    storage.write_tensors(golden / "audio_encode.safetensors", tensors)
