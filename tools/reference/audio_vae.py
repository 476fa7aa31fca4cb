"""Audio decoding: normalised latents of both channels to the waveform, and the anti-aliased activation by itself."""

from pathlib import Path

import torch

import micro_config as config
import micro_model
import storage
from dit import Recorder

# name: (latents per channel, stride of the stored samples)
CASES = {"a1": (1, 1), "a8": (8, 1), "a37": (37, 11)}
EDGE = 500


def denormalise(latents: torch.Tensor) -> torch.Tensor:
    mean = torch.tensor(config.AUDIO_LATENTS_MEAN).view(1, -1, 1)
    std = torch.tensor(config.AUDIO_LATENTS_STD).view(1, -1, 1)
    return latents * std + mean


def kept_positions(length: int, stride: int) -> torch.Tensor:
    """Both ends whole, where padding matters, and every `stride`-th sample between them."""
    inner = torch.arange(0, length, stride)
    return torch.unique(torch.cat([torch.arange(min(EDGE, length)), inner, torch.arange(max(0, length - EDGE), length)]))


def write_goldens(golden: Path, parts: dict[str, dict]) -> None:
    model = micro_model.load_audio_vae(parts["audio_vae"])
    tensors = {}
    for name, (length, stride) in CASES.items():
        latents = config.normal(f"audio_vae.{name}.latents", (2, config.AUDIO_LATENT_CHANNELS, length))
        recorder = Recorder(
            {"dec_in_proj": model.dec_in_proj, "conv_pre": model.decoder.conv_pre, "ups_0": model.decoder.ups[0][0]}
            | {f"resblock_{index}": model.decoder.resblocks[index] for index in (0, 2)}
        )
        with torch.no_grad():
            waveform = model.decode(denormalise(latents), return_dict=False)[0][:, 0]
        inner = recorder.close()
        positions = kept_positions(waveform.shape[1], stride)
        tensors[f"{name}.latents"] = latents
        tensors[f"{name}.positions"] = positions
        tensors[f"{name}.samples"] = waveform[:, positions]
        if name == "a1":
            tensors |= {f"{name}.{key}": value for key, value in inner.items()}

    activation = model.decoder.resblocks[0].activations[0]
    signal = config.normal("audio_vae.activation.input", (2, activation.act.alpha.shape[0], 9))
    with torch.no_grad():
        tensors["activation.input"] = signal
        tensors["activation.upsampled"] = activation.upsample(signal)
        tensors["activation.output"] = activation(signal)
    tensors["activation.filter"] = activation.upsample.filter.flatten()
    storage.write_tensors(golden / "audio_vae.safetensors", tensors)
