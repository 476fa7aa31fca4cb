"""Writes the trained state as a model folder in the official layout, and the adapter files.

    python export.py --out ../../models/h3-tiny
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from audio_vae import SnakeBeta, AudioVae, anti_alias_filter
from config import (
    AUDIO_SHIFT,
    CLIP_FRAMES,
    VIDEO_SHIFT,
    AudioVaeConfig,
    DitConfig,
    TextConfig,
    VideoVaeConfig,
    VisionConfig,
)
from dit import FLOAT32_TENSORS
from lora import RANK
from text_encoder import vision_tower
from tokenizer import EMBEDDING_ROWS, token_id
from training import load

VISION_SEED = 11


def write_json(path: Path, value) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")


def write_tensors(path: Path, tensors: dict, float32=(), metadata=None) -> None:
    """bfloat16, except for names that start with one of `float32`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = {}
    for name, tensor in tensors.items():
        dtype = torch.float32 if name.startswith(float32) else torch.bfloat16
        stored[name] = tensor.detach().to(dtype).contiguous()
    save_file(stored, path, metadata=metadata)


def write_indexed(folder: Path, tensors: dict, float32=()) -> None:
    """One shard and its index, as the official transformer and text encoder have."""
    shard = "model-00001-of-00001.safetensors"
    write_tensors(folder / shard, tensors, float32)
    size = sum(t.numel() * (4 if name.startswith(float32) else 2) for name, t in tensors.items())
    index = {"metadata": {"total_size": size}, "weight_map": dict.fromkeys(sorted(tensors), shard)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index) + "\n")


def export_transformer(folder: Path, state: dict) -> None:
    c = DitConfig()
    write_json(
        folder / "config.json",
        {
            "_class_name": "MiniMaxH3DiTModel",
            "hidden_size": c.hidden,
            "num_layers": c.blocks,
            "token_refiner_num_layers": c.refiner_blocks,
            "num_attention_heads": c.heads,
            "attention_head_dim": c.head_dim,
            "ffn_hidden_size": c.ffn,
            "latents_dim": c.video_channels,
            "audio_latents_dim": c.audio_channels,
            "patch_size": [1, 2, 2],
            "text_dim": c.text_dim,
            "timestep_input_dim": c.frequency_dim,
            "time_embed_hidden_size": c.time_hidden,
            "time_embed_dim": c.time_dim,
            "adaln_out_features": 18 * c.hidden,
            "final_adaln_out_features": 2 * c.hidden,
            "rope_inv_freq_len": c.rope_frequencies,
            "norm_eps": c.eps,
            "qk_norm_eps": c.eps,
            "final_norm_eps": c.eps,
        },
    )
    write_indexed(folder, state, FLOAT32_TENSORS)


def export_text_encoder(folder: Path, state: dict) -> None:
    c, v = TextConfig(), VisionConfig()
    write_json(
        folder / "config.json",
        {
            "architectures": ["Qwen3VLForConditionalGeneration"],
            "model_type": "qwen3_vl",
            "miniacc_text_layers": c.used_layers,
            "image_token_id": token_id("<|image_pad|>"),
            "video_token_id": token_id("<|video_pad|>"),
            "vision_start_token_id": token_id("<|vision_start|>"),
            "vision_end_token_id": token_id("<|vision_end|>"),
            "tie_word_embeddings": False,
            "text_config": {
                "model_type": "qwen3_vl_text",
                "attention_bias": False,
                "bos_token_id": token_id("<|endoftext|>"),
                "eos_token_id": token_id("<|im_end|>"),
                "dtype": "bfloat16",
                "head_dim": c.head_dim,
                "hidden_act": "silu",
                "hidden_size": c.hidden,
                "intermediate_size": c.ffn,
                "max_position_embeddings": 262144,
                "num_attention_heads": c.heads,
                "num_hidden_layers": c.layers,
                "num_key_value_heads": c.kv_heads,
                "rms_norm_eps": c.eps,
                "rope_scaling": {"mrope_interleaved": True, "mrope_section": list(c.mrope_section), "rope_type": "default"},
                "rope_theta": int(c.rope_theta),
                "vocab_size": EMBEDDING_ROWS,
            },
            "vision_config": {
                "model_type": "qwen3_vl",
                "deepstack_visual_indexes": list(v.deepstack),
                "depth": v.depth,
                "hidden_act": "gelu_pytorch_tanh",
                "hidden_size": v.hidden,
                "in_channels": 3,
                "intermediate_size": v.ffn,
                "num_heads": v.heads,
                "num_position_embeddings": v.positions,
                "out_hidden_size": c.hidden,
                "patch_size": v.patch,
                "spatial_merge_size": v.merge,
                "temporal_patch_size": v.temporal_patch,
            },
        },
    )  # fmt: skip
    state = dict(state)
    picture_embedding = state.pop("picture_embedding")
    tensors = {f"model.language_model.{name}": tensor for name, tensor in state.items()}
    tower = vision_tower(v, picture_embedding, torch.Generator().manual_seed(VISION_SEED))
    tensors |= {f"model.visual.{name}": tensor for name, tensor in tower.items()}
    write_indexed(folder, tensors)


def export_video_vae(folder: Path, state: dict) -> None:
    c, state = VideoVaeConfig(), dict(state)
    mean, std = state.pop("latents_mean").tolist(), state.pop("latents_std").tolist()
    write_json(
        folder / "config.json",
        {
            "_class_name": "MiniMaxH3VideoVAE",
            "mode": "standalone",
            "source_path": "source",
            "source_class_name": "AutoencoderKLLegacy",
            "vae_clip_length": CLIP_FRAMES,
            "vae_token_drop": 3,
            "vae_encoder_tiling": 1,
            "vae_decoder_tiling": 1,
            "vae_tile_size": 256,
            "vae_tile_overlap_min": 64,
            "source_safetensors_path": "model.safetensors",
            "latent_channels": c.latent_channels,
            "latents_mean": mean,
            "latents_std": std,
        },
    )
    write_json(
        folder / "source" / "config.json",
        {
            "_class_name": "AutoencoderKLLegacy",
            "causal_decoder": False,
            "causal_encoder": True,
            "ch": c.channels,
            "ch_mult": list(c.multipliers),
            "embed_dim": c.latent_channels,
            "in_channels": 3,
            "num_res_blocks": c.blocks_per_level,
            "out_ch": 3,
            "padding_mode": "reflect",
            "pixel_norm_type": "imagenet",
            "scaling_factor": 1.0,
            "shift_factor": 0.0,
            "space_down": list(c.space_down),
            "time_down": list(c.time_down),
            "use_3d_conv": True,
            "use_t_isolated_gn": True,
            "use_vit_decoder": True,
            "vae_ratio": 16,
            "vae_ratio_t": 4,
            "vit_decoder_kwargs": {
                "dim_head": c.head_dim,
                "ffn_activation_fn": "silu",
                "ffn_hidden_size": c.ffn,
                "ffn_use_gated": True,
                "heads": c.heads,
                "norm_affine": True,
                "norm_type": "rms_norm",
                "num_layers": c.layers,
                "qk_norm_affine": False,
                "qk_norm_type": "rms_norm",
                "rope_dim_ratio": c.rope_ratio,
                "rope_theta": c.rope_theta,
            },
            "z_channels": c.latent_channels,
        },
    )
    state["decoder.mask_token"] = torch.zeros(1, 1, c.width)  # in the official file, never read
    write_tensors(folder / "source" / "model.safetensors", state)


def export_audio_vae(folder: Path, state: dict) -> None:
    c, state = AudioVaeConfig(), dict(state)
    mean, std = state.pop("latents_mean").tolist(), state.pop("latents_std").tolist()
    write_json(
        folder / "config.json",
        {
            "_class_name": "MiniMaxH3AudioVAE",
            "output_channel": 2,
            "sample_rate": 32000,
            "source_config_path": "config.yaml",
            "source_safetensors_path": "model.safetensors",
            "source_metadata_path": "metadata.json",
            "latent_channels": c.latent_channels,
            "latents_mean": mean,
            "latents_std": std,
        },
    )
    kwargs = {
        "attn_proj": True,
        "decoder_dim": c.decoder_dim,
        "decoder_rates": list(c.decoder_rates),
        "decoder_type": "bigvgan",
        "encoder_dim": c.encoder_dim,
        "encoder_rates": list(c.encoder_rates),
        "latent_dim": c.latent_dim,
        "sample_rate": 32000,
        "vae_latent_channels": c.latent_channels,
    }
    write_json(folder / "metadata.json", {"metadata": {"kwargs": kwargs}})
    (folder / "config.yaml").write_text(
        f"model_config:\n  sr: 32000\n  decoder_dim: {c.decoder_dim}\n  audio_channel: 1\n"
        f"  vae_latent_channels: {c.latent_channels}\n"
    )
    taps = anti_alias_filter()[None, None]
    filters = {}
    for name, module in AudioVae().named_modules():
        if isinstance(module, SnakeBeta):
            filters[f"{name}.upsample.filter"] = taps.clone()
            filters[f"{name}.downsample.lowpass.filter"] = taps.clone()
    write_tensors(folder / "model.safetensors", {**state, **filters}, float32=tuple(filters))


def adapter_layers(state: dict):
    """(block, target, A [pairs, rank, in], B [pairs, out, rank]) of each adapted layer."""
    for name in sorted(key for key in state if key.endswith("lora_A")):
        stem = name.removesuffix(".lora_A")
        _, block, target = stem.split(".", 2)
        yield int(block), target, state[name], state[f"{stem}.lora_B"]


def diffusers_adapter(state: dict) -> dict:
    """Split q, k, v; value rows of fc1 before gate rows."""
    names = {"attn.out_proj": ["attn.to_out.0"], "mlp.fc1": ["ff.net.0.proj"], "mlp.fc2": ["ff.net.2"],
             "attn.qkv_proj": ["attn.to_q", "attn.to_k", "attn.to_v"]}  # fmt: skip
    tensors = {}
    for block, target, down, up in adapter_layers(state):
        for pair, name in enumerate(names[target]):
            rows = up[pair]
            if target == "mlp.fc1":
                gate, value = rows.chunk(2)
                rows = torch.cat([value, gate])
            stem = f"transformer_blocks.{block}.{name}"
            tensors[f"{stem}.lora_A.weight"], tensors[f"{stem}.lora_B.weight"] = down[pair], rows
            tensors[f"{stem}.alpha"] = torch.tensor(float(RANK))
    return tensors


def comfy_adapter(state: dict) -> dict:
    """Fused qkv of three times the rank with plain rows; gate rows of fc1 first."""
    tensors = {}
    for block, target, down, up in adapter_layers(state):
        stem = f"diffusion_model.blocks.{block}.{target}"
        tensors[f"{stem}.lora_A.weight"] = down.flatten(0, 1)
        tensors[f"{stem}.lora_B.weight"] = torch.block_diag(*up)
        # alpha / rank stays 1, and the rank of a fused layer is the sum of its parts'.
        tensors[f"{stem}.alpha"] = torch.tensor(float(down.shape[0] * RANK))
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, default=Path("../../.train"))
    parser.add_argument("--out", type=Path, required=True, help="model folder; holds tokenizer/ already")
    args = parser.parse_args()
    base = load(args.state, "base")
    parts = {
        part: {k.removeprefix(f"{part}."): v for k, v in base.items() if k.startswith(f"{part}.")}
        for part in ("dit", "text_encoder")
    }
    export_transformer(args.out / "transformer", parts["dit"])
    export_text_encoder(args.out / "text_encoder", parts["text_encoder"])
    export_video_vae(args.out / "video_vae", load(args.state, "video_vae"))
    export_audio_vae(args.out / "audio_vae", load(args.state, "audio_vae"))
    write_json(
        args.out / "model_index.json",
        {
            "_class_name": "MiniMaxH3Pipeline",
            "text_encoder": ["transformers", "MiniMaxH3Qwen3VLHFEncoder"],
            "tokenizer": ["transformers", "Qwen2TokenizerFast"],
            "video_vae": ["diffusers", "MiniMaxH3VideoVAE"],
            "audio_vae": ["diffusers", "MiniMaxH3AudioVAE"],
            "scheduler": None,
            "transformer": ["diffusers", "MiniMaxH3DiTModel"],
            "_minimax_h3": {
                "schema_version": 1,
                "partition": "fl2va",
                "tasks": ["t2va", "fl2va"],
                "task_aliases": {},
                "sigma_shift_scales": {"video": VIDEO_SHIFT, "audio": AUDIO_SHIFT},
            },
        },
    )
    adapter = load(args.state, "adapter")
    metadata = {"lora_rank": str(RANK), "steps": "4", "video_shift": "12", "audio_shift": "3"}
    for kind, tensors in (("diffusers", diffusers_adapter(adapter)), ("comfy", comfy_adapter(adapter))):
        path = args.out / "adapters" / f"h3-tiny-4step-{kind}.safetensors"
        write_tensors(path, tensors, metadata=metadata)
    size = sum(file.stat().st_size for file in args.out.rglob("*") if file.is_file())
    print(f"{args.out}: {size / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
