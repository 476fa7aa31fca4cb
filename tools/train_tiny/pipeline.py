"""Loads an exported model folder, with or without an adapter, as float32 torch modules."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

import tokenizer as tokenizer_files
from audio_vae import AudioVae
from clips import Autoencoders
from dit import Dit
from text_encoder import TextEncoder
from video_vae import VideoVae

ADAPTER_TARGETS = {"attn.to_out.0": "attn.out_proj", "ff.net.0.proj": "mlp.fc1", "ff.net.2": "mlp.fc2"}


@dataclass
class Model:
    tokenizer: Tokenizer
    text_encoder: TextEncoder
    dit: Dit
    autoencoders: Autoencoders


def _floats(path: Path) -> dict:
    return {name: tensor.float() for name, tensor in load_file(path).items()}


def _indexed(folder: Path) -> dict:
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    return {name: tensor for file in files for name, tensor in _floats(folder / file).items()}


def merge_adapter(state: dict, path: Path, heads: int) -> int:
    """Adds a diffusers-named adapter to official transformer weights; returns the layers changed."""
    adapter, merged = _floats(path), 0
    for name in adapter:
        if not name.endswith(".lora_A.weight"):
            continue
        stem = name.removesuffix(".lora_A.weight")
        down, up = adapter[name], adapter[f"{stem}.lora_B.weight"]
        delta = float(adapter[f"{stem}.alpha"]) / len(down) * (up @ down)
        _, block, target = stem.split(".", 2)
        if target in ADAPTER_TARGETS:
            if target == "ff.net.0.proj":  # value rows first here, gate rows first there
                delta = torch.cat(delta.chunk(2)[::-1])
            state[f"blocks.{block}.{ADAPTER_TARGETS[target]}.weight"] += delta
        else:
            part = ("attn.to_q", "attn.to_k", "attn.to_v").index(target)
            rows = state[f"blocks.{block}.attn.qkv_proj.weight"].view(heads, 3, -1, delta.shape[1])
            rows[:, part] += delta.view(heads, -1, delta.shape[1])
        merged += 1
    if not merged:
        raise ValueError(f"{path}: no adapter layer matches the transformer")
    return merged


def load_model(folder: Path, device=torch.device("cpu"), adapter: Path | None = None) -> Model:
    dit, text_encoder = Dit(), TextEncoder()
    state = _indexed(folder / "transformer")
    if adapter is not None:
        merge_adapter(state, adapter, dit.config.heads)
    dit.load_state_dict(state)
    prefix = "model.language_model."
    text = _indexed(folder / "text_encoder")
    text_state = {k.removeprefix(prefix): v for k, v in text.items() if k.startswith(prefix)}
    text_state["picture_embedding"] = text["model.visual.merger.linear_fc2.bias"]
    text_encoder.load_state_dict(text_state)
    states = []
    for part, file in (("video_vae", "source/model.safetensors"), ("audio_vae", "model.safetensors")):
        config = json.loads((folder / part / "config.json").read_text())
        state = _floats(folder / part / file)
        state = {k: v for k, v in state.items() if not k.endswith((".filter", "mask_token"))}
        for key in ("latents_mean", "latents_std"):
            state[key] = torch.tensor(config[key])
        states.append(state)
    return Model(
        tokenizer_files.load(folder / "tokenizer"),
        text_encoder.to(device).eval(),
        dit.to(device).eval(),
        Autoencoders(VideoVae(), AudioVae(), *states, device),
    )
