"""Request noise: torch's CPU generator and the three published draw orders of a text-only request.

The values come from `torch.randn` on the CPU. PyTorch has two code paths for 16 values or more: a scalar one and an
AVX2 one (used on AVX-512 machines too) whose logarithm, sine and cosine differ in the last bits; both are stored.
The draw orders of `diffusers` are checked against the library in pipeline.py; `sglang` and `comfy` are written here
after their published recipes, because those engines are not Python packages that can be called for it.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file

import storage

SEEDS = [0, 1, 42, 12345678901, 2**64 - 1]
LENGTHS = [16, 17, 31, 40, 100, 1000]

# (frames, T, height, width, A) of text-to-video requests, pixel sizes.
REQUESTS = {
    "micro": {"num_latent_frames": 7, "latent_height": 4, "latent_width": 6, "num_audio_latents": 37},
    "released": {"num_latent_frames": 37, "latent_height": 48, "latent_width": 84, "num_audio_latents": 207},
}
VIDEO_CHANNELS = 24
AUDIO_CHANNELS = 32
ORDERS = ("sglang", "diffusers", "comfy")
# Positions stored of a tensor too large to keep whole: its first and last values and a stride through the middle.
SAMPLE_EDGE = 64
SAMPLE_STRIDE = 9973


def draw(order: str, seed: int, num_latent_frames: int, latent_height: int, latent_width: int, num_audio_latents: int):
    """Video noise [1, 24, T, h, w] and audio noise [2, 32, A] (left and right channel)."""
    generator = torch.Generator("cpu").manual_seed(seed)
    video = torch.randn((1, VIDEO_CHANNELS, num_latent_frames, latent_height, latent_width), generator=generator)
    if order == "comfy":
        audio = torch.randn((1, AUDIO_CHANNELS, 2, num_audio_latents), generator=generator)
        return video, audio[0].permute(1, 0, 2).contiguous()
    if order == "sglang":
        generator = torch.Generator("cpu").manual_seed(seed)
    elif order != "diffusers":
        raise ValueError(f"unknown draw order {order}")
    rows = torch.randn((2 * num_audio_latents, AUDIO_CHANNELS), generator=generator)
    return video, rows.unflatten(0, (2, num_audio_latents)).permute(0, 2, 1).contiguous()


def sample_positions(count: int) -> torch.Tensor:
    if count <= 2 * SAMPLE_EDGE:
        return torch.arange(count)
    middle = torch.arange(SAMPLE_EDGE, count - SAMPLE_EDGE, SAMPLE_STRIDE)
    return torch.cat([torch.arange(SAMPLE_EDGE), middle, torch.arange(count - SAMPLE_EDGE, count)])


def sha256(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def goldens() -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    tensors, digests = {}, {}
    for seed in SEEDS:
        for length in LENGTHS:
            generator = torch.Generator("cpu").manual_seed(seed)
            tensors[f"randn.seed_{seed}.n_{length}"] = torch.randn(length, generator=generator)
        # The generator below the normal transform; 700 values cross the border of its state of 624 words.
        # Unbounded 32-bit integers are its raw outputs without the top bit, uniforms the low 24 bits over 2^24.
        generator = torch.Generator("cpu").manual_seed(seed)
        tensors[f"raw31.seed_{seed}"] = torch.empty(700, dtype=torch.int32).random_(generator=generator)
        generator = torch.Generator("cpu").manual_seed(seed)
        tensors[f"uniform.seed_{seed}"] = torch.rand(700, generator=generator)
        # Two draws from one generator: the second continues where the first stopped.
        generator = torch.Generator("cpu").manual_seed(seed)
        tensors[f"continued.seed_{seed}.first_24"] = torch.randn(24, generator=generator)
        tensors[f"continued.seed_{seed}.second_50"] = torch.randn(50, generator=generator)
    for request, sizes in REQUESTS.items():
        for seed in (0, 42, 12345678901):
            for order in ORDERS:
                for name, noise in zip(("video", "audio"), draw(order, seed, **sizes)):
                    if name == "video" and order != ORDERS[0]:
                        continue  # the same for all three orders when nothing is conditioned on
                    key = f"{request}.seed_{seed}.{'all' if name == 'video' else order}.{name}"
                    positions = sample_positions(noise.numel())
                    tensors[f"{key}.positions"] = positions
                    tensors[f"{key}.values"] = noise.flatten()[positions]
                    digests[key] = sha256(noise)
    return tensors, digests


def write_goldens(golden: Path) -> None:
    """Runs itself once per code path, because torch chooses the path when it is imported."""
    for path_name, capability in (("avx2", "avx2"), ("scalar", "default")):
        environment = os.environ | {"ATEN_CPU_CAPABILITY": capability}
        output = golden / f"noise_{path_name}.safetensors"
        subprocess.run([sys.executable, __file__, str(output)], env=environment, check=True)
    fast, plain = (load_file(golden / f"noise_{name}.safetensors") for name in ("avx2", "scalar"))
    worst = 0.0
    for name, tensor in fast.items():
        if tensor.is_floating_point():
            worst = max(worst, float((tensor - plain[name]).abs().max()))
        elif not torch.equal(tensor, plain[name]):
            raise AssertionError(f"{name} depends on the code path")
    if worst > 4e-6:
        raise AssertionError(f"the two code paths differ by {worst}")
    digests = {}
    for path_name in ("avx2", "scalar"):
        with safe_open(golden / f"noise_{path_name}.safetensors", "pt") as file:
            digests[f"sha256_{path_name}"] = json.loads(file.metadata()["sha256"])
    storage.write_json(golden / "noise.json", {"requests": REQUESTS} | digests)
    # Of the scalar path only the plain draws are kept.
    kept = {name: tensor for name, tensor in plain.items() if name.startswith("randn")}
    storage.write_tensors(golden / "noise_scalar.safetensors", kept)


if __name__ == "__main__":
    torch.set_num_threads(1)
    all_tensors, all_digests = goldens()
    storage.write_tensors(Path(sys.argv[1]), all_tensors, {"sha256": json.dumps(all_digests)})
