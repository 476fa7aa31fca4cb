"""Dimensions of h3-micro: every size differs from its neighbours and from the released model, so that a swapped axis,
a transposed matrix or a constant left in the code shows up as a wrong shape or a wrong value."""

import zlib

import torch

BASE_SEED = 20260

# Official config.json of the transformer. Two derived sizes are stored there too.
HIDDEN_SIZE = 48
NUM_MODALITIES = 3
TRANSFORMER = {
    "_class_name": "MiniMaxH3DiTModel",
    "_diffusers_version": "0.32.2",
    "hidden_size": HIDDEN_SIZE,
    "num_layers": 3,
    "token_refiner_num_layers": 2,
    "num_attention_heads": 3,
    "attention_head_dim": 32,
    "ffn_hidden_size": 80,
    "latents_dim": 24,
    "audio_latents_dim": 32,
    "patch_size": [1, 2, 2],
    "text_dim": 56,
    "timestep_input_dim": 32,
    "time_embed_hidden_size": 40,
    "time_embed_dim": 36,
    "adaln_out_features": NUM_MODALITIES * 6 * HIDDEN_SIZE,
    "final_adaln_out_features": 2 * HIDDEN_SIZE,
    "rope_inv_freq_len": 4,
    "norm_eps": 1e-05,
    "qk_norm_eps": 1e-05,
    "final_norm_eps": 1e-05,
}

# Diffusers spelling of the same keys.
DIFFUSERS_TRANSFORMER_KEYS = {
    "num_attention_heads": "num_attention_heads",
    "attention_head_dim": "attention_head_dim",
    "hidden_size": "hidden_size",
    "num_layers": "num_layers",
    "num_refiner_layers": "token_refiner_num_layers",
    "ffn_dim": "ffn_hidden_size",
    "in_channels": "latents_dim",
    "audio_in_channels": "audio_latents_dim",
    "patch_size": "patch_size",
    "text_dim": "text_dim",
    "freq_dim": "timestep_input_dim",
    "time_embed_hidden_dim": "time_embed_hidden_size",
    "time_embed_dim": "time_embed_dim",
    "rope_freq_dim": "rope_inv_freq_len",
    "norm_eps": "norm_eps",
    "qk_norm_eps": "qk_norm_eps",
    "final_norm_eps": "final_norm_eps",
}

# Curve-table form: rank and number of grid rows.
CURVE_RANK = 5
CURVE_ROWS = 65

# The conditioner: five layers in the file, of which the first three are used (50 of 64 in the released model).
TEXT_LAYERS_USED = 3
TEXT_LAYERS_STORED = 5
TEXT_CONFIG = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "dtype": "bfloat16",
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 56,
    "initializer_range": 0.02,
    "intermediate_size": 72,
    "max_position_embeddings": 262144,
    "model_type": "qwen3_vl_text",
    "num_attention_heads": 4,
    "num_hidden_layers": TEXT_LAYERS_STORED,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_scaling": {"mrope_interleaved": True, "mrope_section": [4, 2, 2], "rope_type": "default"},
    "rope_theta": 5000000,
    "use_cache": True,
}
VISION_CONFIG = {
    "deepstack_visual_indexes": [0, 1, 2],
    "depth": 4,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 16,
    "in_channels": 3,
    "initializer_range": 0.02,
    "intermediate_size": 28,
    "model_type": "qwen3_vl",
    "num_heads": 2,
    "num_position_embeddings": 36,
    "out_hidden_size": 56,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}

# Video VAE. `norm_num_groups` is an addition to the official file, which has no such key because its code fixes 32
# groups; 32-channel-wide convolutions would make the goldens several times larger.
VIDEO_LATENT_CHANNELS = 24
VIDEO_VAE_SOURCE = {
    "_class_name": "AutoencoderKLLegacy",
    "_diffusers_version": "0.32.2",
    "causal_decoder": False,
    "causal_encoder": True,
    "ch": 4,
    "ch_mult": [1, 2, 2, 3, 3, 4],
    "embed_dim": VIDEO_LATENT_CHANNELS,
    "in_channels": 3,
    "norm_num_groups": 2,
    "num_res_blocks": 2,
    "num_res_blocks_decoder": None,
    "out_ch": 3,
    "padding_mode": "reflect",
    "padding_mode_t": None,
    "pixel_norm_type": "imagenet",
    "scaling_factor": 1.0,
    "shift_factor": 0.0,
    "space_down": [2, 2, 2, 2, 1, 1],
    "space_up": [1, 2, 2, 2, 2, 1],
    "time_down": [1, 2, 2, 1, 1, 1],
    "time_up": None,
    "use_3d_conv": True,
    "use_t_isolated_gn": True,
    "use_vit_decoder": True,
    "vae_ratio": 16,
    "vae_ratio_t": 4,
    "vit_decoder_kwargs": {
        "dim_head": 16,
        "ffn_activation_fn": "silu",
        "ffn_use_gated": True,
        "heads": 4,
        "norm_affine": True,
        "norm_type": "rms_norm",
        "num_layers": 3,
        "qk_norm_affine": False,
        "qk_norm_type": "rms_norm",
        "rope_dim_ratio": 0.75,
        "rope_theta": 100.0,
    },
    "z_channels": VIDEO_LATENT_CHANNELS,
    "zq_ch_decoder": None,
    "zq_ch_encoder": None,
}
VIDEO_REGISTER_TOKENS = 4
VIDEO_FFN_MULT = 2  # four in the released model; the official files show it in shapes only

# Audio VAE. The kernel sizes, the dilations and the number of attention heads are fixed in the official code and absent
# from its metadata; `num_attention_heads` is an addition here because the micro trunk is too narrow for eight heads.
AUDIO_LATENT_CHANNELS = 32
AUDIO_VAE = {
    "encoder_dim": 2,
    "encoder_rates": [2, 4, 4, 5, 5],
    "latent_dim": 64,
    "latent_channels": AUDIO_LATENT_CHANNELS,
    "num_attention_heads": 2,
    "decoder_dim": 128,
    "decoder_rates": [5, 5, 2, 2, 2, 2, 2],
    "decoder_kernel_sizes": [9, 9, 4, 4, 4, 4, 4],
    "resblock_kernel_sizes": [3, 7, 11],
    "resblock_dilation_sizes": [[1, 3, 5], [1, 3, 5], [1, 3, 5]],
    "sampling_rate": 32000,
}


def generator_for(name: str) -> torch.Generator:
    """A generator of its own for each name: adding or reordering tensors leaves all other values as they were."""
    return torch.Generator().manual_seed(BASE_SEED * 2**32 + zlib.crc32(name.encode()))


def normal(name: str, shape, scale: float = 1.0, mean: float = 0.0) -> torch.Tensor:
    return torch.randn(shape, generator=generator_for(name)) * scale + mean


def uniform(name: str, shape, low: float, high: float) -> torch.Tensor:
    return torch.rand(shape, generator=generator_for(name)) * (high - low) + low


def latent_statistics(name: str, channels: int) -> tuple[list[float], list[float]]:
    """Mean and standard deviation per latent channel, short decimals so that JSON holds them exactly."""
    mean = [round(float(value), 4) for value in normal(name + ".latents_mean", channels, 0.6)]
    std = [round(float(value), 4) for value in uniform(name + ".latents_std", channels, 0.7, 2.4)]
    return mean, std


VIDEO_LATENTS_MEAN, VIDEO_LATENTS_STD = latent_statistics("video_vae", VIDEO_LATENT_CHANNELS)
AUDIO_LATENTS_MEAN, AUDIO_LATENTS_STD = latent_statistics("audio_vae", AUDIO_LATENT_CHANNELS)


def diffusers_transformer_config() -> dict:
    return {theirs: TRANSFORMER[ours] for theirs, ours in DIFFUSERS_TRANSFORMER_KEYS.items()} | {"rope_theta": 10000.0}


def diffusers_video_vae_config() -> dict:
    decoder = VIDEO_VAE_SOURCE["vit_decoder_kwargs"]
    return {
        "in_channels": VIDEO_VAE_SOURCE["in_channels"],
        "out_channels": VIDEO_VAE_SOURCE["out_ch"],
        "latent_channels": VIDEO_LATENT_CHANNELS,
        "block_out_channels": [VIDEO_VAE_SOURCE["ch"] * mult for mult in VIDEO_VAE_SOURCE["ch_mult"]],
        "layers_per_block": VIDEO_VAE_SOURCE["num_res_blocks"],
        "spatial_downsample_factors": VIDEO_VAE_SOURCE["space_down"],
        "temporal_downsample_factors": VIDEO_VAE_SOURCE["time_down"],
        "norm_num_groups": VIDEO_VAE_SOURCE["norm_num_groups"],
        "norm_eps": 1e-06,
        "spatial_padding_mode": VIDEO_VAE_SOURCE["padding_mode"],
        "decoder_num_layers": decoder["num_layers"],
        "decoder_num_attention_heads": decoder["heads"],
        "decoder_attention_head_dim": decoder["dim_head"],
        "decoder_num_register_tokens": VIDEO_REGISTER_TOKENS,
        "decoder_ffn_mult": VIDEO_FFN_MULT,
        "decoder_rope_theta": decoder["rope_theta"],
        "decoder_rope_dim_ratio": decoder["rope_dim_ratio"],
        "decoder_norm_eps": 1e-05,
        "clip_length": 17,
        "token_drop": 3,
        "latents_mean": VIDEO_LATENTS_MEAN,
        "latents_std": VIDEO_LATENTS_STD,
    }


def diffusers_audio_vae_config() -> dict:
    return AUDIO_VAE | {"latents_mean": AUDIO_LATENTS_MEAN, "latents_std": AUDIO_LATENTS_STD}


def official_video_vae_config() -> dict:
    return {
        "_class_name": "MiniMaxH3VideoVAE",
        "_diffusers_version": "0.32.2",
        "mode": "standalone",
        "source_path": "source",
        "source_class_name": "AutoencoderKLLegacy",
        "vae_clip_length": 17,
        "vae_token_drop": 3,
        "vae_encoder_tiling": 1,
        "vae_decoder_tiling": 1,
        "vae_parallel_tiling": 1,
        "vae_tile_size": 256,
        "vae_tile_overlap_min": 64,
        "vae_encoder_parallel": 0,
        "vae_decoder_parallel": 0,
        "vae_chunk_dim": -1,
        "source_safetensors_path": "model.safetensors",
        "latent_channels": VIDEO_LATENT_CHANNELS,
        "latents_mean": VIDEO_LATENTS_MEAN,
        "latents_std": VIDEO_LATENTS_STD,
    }


def official_audio_vae_config() -> dict:
    return {
        "_class_name": "MiniMaxH3AudioVAE",
        "_diffusers_version": "0.32.2",
        "output_channel": 2,
        "sample_rate": AUDIO_VAE["sampling_rate"],
        "source_config_path": "config.yaml",
        "source_safetensors_path": "model.safetensors",
        "source_metadata_path": "metadata.json",
        "latent_channels": AUDIO_LATENT_CHANNELS,
        "latents_mean": AUDIO_LATENTS_MEAN,
        "latents_std": AUDIO_LATENTS_STD,
    }


def official_audio_vae_yaml() -> str:
    return (
        "model_config:\n"
        f"  sr: {AUDIO_VAE['sampling_rate']}\n"
        f"  decoder_dim: {AUDIO_VAE['decoder_dim']}\n"
        "  audio_channel: 1\n"
        f"  vae_latent_channels: {AUDIO_LATENT_CHANNELS}\n"
    )


def official_audio_vae_metadata() -> dict:
    return {
        "metadata": {
            "kwargs": {
                "attn_proj": True,
                "decoder_dim": AUDIO_VAE["decoder_dim"],
                "decoder_rates": AUDIO_VAE["decoder_rates"],
                "decoder_type": "bigvgan",
                "encoder_dim": AUDIO_VAE["encoder_dim"],
                "encoder_rates": AUDIO_VAE["encoder_rates"],
                "latent_dim": AUDIO_VAE["latent_dim"],
                "num_attention_heads": AUDIO_VAE["num_attention_heads"],
                "sample_rate": AUDIO_VAE["sampling_rate"],
                "vae_latent_channels": AUDIO_LATENT_CHANNELS,
            }
        }
    }
