"""Random weights of h3-micro and the folders they are stored in.

Weight statistics are chosen so that activations stay of order one and no term is negligible: linear layers keep the
variance of their input, norm weights scatter around one, biases, gates, shifts and per-channel scales are far from
zero. Each tensor is rounded to the dtype it is stored in before anything is computed with it.
"""

import re
from pathlib import Path

import torch
from diffusers import AutoencoderKLMiniMaxH3, AutoencoderKLMiniMaxH3Audio, MiniMaxH3Transformer3DModel
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

import micro_config as config
import official_names as names
import storage

# Modules the released checkpoint keeps in float32; all other transformer tensors are bfloat16.
TRANSFORMER_FLOAT32 = ("proj_in.", "audio_proj_in.", "time_embedder.", "proj_out.", "audio_proj_out.")


def linear_like(name: str, shape, gain: float = 1.0) -> torch.Tensor:
    """Keeps the variance of a white input: fan-in is everything but the output dimension."""
    fan_in = max(1, torch.Size(shape[1:]).numel())
    return config.normal(name, shape, gain / fan_in**0.5)


# ---------------------------------------------------------------------------------------------- transformer


def transformer_value(name: str, shape) -> torch.Tensor:
    if "adaln_proj.linear" in name or name.startswith("norm_out.linear"):
        return linear_like(name, shape, 0.7) if name.endswith("weight") else config.normal(name, shape, 0.35)
    if "norm" in name:
        sharpness = 1.4 if ".norm_q." in name else 1.0
        return config.normal(name, shape, 0.2, sharpness)
    if name.endswith("bias"):
        return config.normal(name, shape, 0.3)
    if name == "time_embedder.linear_1.weight":
        # Most of the sinusoids hardly move over [0, 1]; a large gain on the few that do makes the time matter.
        return linear_like(name, shape, 1.2) * torch.tensor([8.0] * 4 + [1.0] * (shape[1] // 2 - 4)).repeat(2)
    if name.startswith(("proj_out.", "audio_proj_out.")):
        return linear_like(name, shape, 0.6)
    return linear_like(name, shape)


def transformer_dtype(name: str) -> torch.dtype:
    return torch.float32 if name.startswith(TRANSFORMER_FLOAT32) else torch.bfloat16


def transformer_tensors() -> dict[str, torch.Tensor]:
    """Diffusers names, stored dtypes."""
    model = MiniMaxH3Transformer3DModel(**config.diffusers_transformer_config())
    return {
        name: transformer_value(name, tensor.shape).to(transformer_dtype(name))
        for name, tensor in model.state_dict().items()
    }


def rope_inv_freq() -> torch.Tensor:
    return MiniMaxH3Transformer3DModel(**config.diffusers_transformer_config()).rope.inv_freq.clone()


def load_transformer(tensors: dict[str, torch.Tensor]) -> MiniMaxH3Transformer3DModel:
    """The reference class in float32 with the stored values."""
    model = MiniMaxH3Transformer3DModel(**config.diffusers_transformer_config())
    model.load_state_dict(storage.to_float32(tensors), strict=True)
    return model.eval().requires_grad_(False)


# --------------------------------------------------------------------------------------------- text encoder


def text_encoder_config(token_ids: dict[str, int], vocab_size: int) -> dict:
    return {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        # Which hidden state conditions the transformer. The released folder has no such key: there it is always 50.
        "conditioning_layer": config.TEXT_LAYERS_USED,
        "image_token_id": token_ids["<|image_pad|>"],
        "model_type": "qwen3_vl",
        "text_config": config.TEXT_CONFIG
        | {
            "bos_token_id": token_ids["<|endoftext|>"],
            "eos_token_id": token_ids["<|im_end|>"],
            "vocab_size": vocab_size,
        },
        "tie_word_embeddings": False,
        "transformers_version": "4.57.0.dev0",
        "video_token_id": token_ids["<|video_pad|>"],
        "vision_config": config.VISION_CONFIG,
        "vision_end_token_id": token_ids["<|vision_end|>"],
        "vision_start_token_id": token_ids["<|vision_start|>"],
    }


def text_encoder_value(name: str, shape) -> torch.Tensor:
    if name.endswith("embed_tokens.weight") or name.endswith("pos_embed.weight"):
        return config.normal(name, shape)
    if "norm" in name and name.endswith("weight"):
        sharpness = 1.3 if "q_norm" in name else 1.0
        return config.normal(name, shape, 0.2, sharpness)
    if name.endswith("bias"):
        return config.normal(name, shape, 0.2)
    return linear_like(name, shape)


def text_encoder_tensors(model_config: dict) -> dict[str, torch.Tensor]:
    model = Qwen3VLForConditionalGeneration(Qwen3VLConfig(**model_config))
    return {
        name: text_encoder_value(name, tensor.shape).to(torch.bfloat16)
        for name, tensor in model.state_dict().items()
    }


# ------------------------------------------------------------------------------------------------ video VAE


def video_vae_value(name: str, shape) -> torch.Tensor:
    if name.endswith("register_tokens"):
        return config.normal("video_vae." + name, shape)
    if name.endswith(("scale1", "scale2")):
        return config.normal("video_vae." + name, shape, 0.3, 0.6)
    if "norm" in name and name.endswith("weight"):
        return config.normal("video_vae." + name, shape, 0.2, 1.0)
    if name.endswith("bias"):
        # Normalisation hides small offsets of queries and keys.
        is_normalised = ".to_q." in name or ".to_k." in name
        return config.normal("video_vae." + name, shape, 0.7 if is_normalised else 0.2)
    return linear_like("video_vae." + name, shape)


def vae_dtype(name: str, tensor: torch.Tensor) -> torch.dtype:
    """Matrices and kernels are float16, vectors and the resampling filters float32: half the size of the released
    float32 files, and a reader has to handle both."""
    is_matrix = name.endswith(("weight", "weight_v")) and tensor.ndim >= 2
    return torch.float16 if is_matrix else torch.float32


def video_vae_tensors() -> dict[str, torch.Tensor]:
    """Diffusers names."""
    model = AutoencoderKLMiniMaxH3(**config.diffusers_video_vae_config())
    values = {name: video_vae_value(name, tensor.shape) for name, tensor in model.state_dict().items()}
    return {name: value.to(vae_dtype(name, value)) for name, value in values.items()}


def load_video_vae(tensors: dict[str, torch.Tensor]) -> AutoencoderKLMiniMaxH3:
    model = AutoencoderKLMiniMaxH3(**config.diffusers_video_vae_config())
    model.load_state_dict(storage.to_float32(tensors), strict=True)
    return model.eval().requires_grad_(False)


# ------------------------------------------------------------------------------------------------ audio VAE


def audio_vae_value(name: str, tensor: torch.Tensor) -> torch.Tensor:
    shape, key = tensor.shape, "audio_vae." + name
    if name.endswith((".filter", "zero_k_bias")):
        return tensor.clone()
    if name.endswith("act.alpha") or name.endswith("act.beta"):
        return config.normal(key, shape, 0.35)  # logarithms
    if name.endswith(".alpha"):
        return config.uniform(key, shape, 0.5, 1.5)
    if name.endswith("weight_g"):
        # A row norm of one keeps the variance; the released decoder's strided stages spread one input over
        # rate / 2 outputs, and the residual convolutions add to what they start from.
        centre = 1.0
        match = re.match(r"decoder\.ups\.(\d+)\.", name)
        if match is not None:
            centre = (config.AUDIO_VAE["decoder_rates"][int(match.group(1))] / 2) ** 0.5
        elif ".convs2." in name:
            centre = 0.6
        elif name.startswith("decoder.conv_post"):
            centre = 0.06
        elif name.startswith("encoder") and ".block.3." in name and name.count("block") == 4:
            centre = 0.6
        return config.uniform(key, shape, 0.7 * centre, 1.3 * centre)
    if name.endswith("weight_v"):
        return config.normal(key, shape)
    if "norm" in name and name.endswith("weight"):
        return config.normal(key, shape, 0.2, 1.0)
    if name.endswith("bias"):
        return config.normal(key, shape, 0.2)
    return linear_like(key, shape, 0.7 if name.startswith("dec_in_proj") else 1.0)


def audio_vae_tensors() -> dict[str, torch.Tensor]:
    """Official and diffusers names are the same."""
    model = AutoencoderKLMiniMaxH3Audio(**config.diffusers_audio_vae_config())
    values = {name: audio_vae_value(name, tensor) for name, tensor in model.state_dict().items()}
    return {name: value.to(vae_dtype(name, value)) for name, value in values.items()}


def load_audio_vae(tensors: dict[str, torch.Tensor]) -> AutoencoderKLMiniMaxH3Audio:
    model = AutoencoderKLMiniMaxH3Audio(**config.diffusers_audio_vae_config())
    model.load_state_dict(storage.to_float32(tensors), strict=True)
    return model.eval().requires_grad_(False)


# ------------------------------------------------------------------------------------------------ curve form


def curve_transformer_tensors(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """ComfyUI's pruned form: the time network gives way to a table, and the modulation layers read its few columns.
    All other weights are those of h3-micro. Official names, plain order of the fused rows."""
    official = names.transformer_to_official(
        tensors, config.TRANSFORMER["num_attention_heads"], rope_inv_freq(), interleaved=False
    )
    curve = {}
    for name, tensor in official.items():
        if name.startswith("time_embedder."):
            continue
        if name.endswith("adaln_proj.linear.weight"):
            curve[name] = linear_like("curve." + name, (tensor.shape[0], config.CURVE_RANK), 0.7).half()
        elif name.endswith("adaln_proj.linear.bias"):
            curve[name] = config.normal("curve." + name, tensor.shape, 0.35).half()
        else:
            curve[name] = tensor
    # Steps between neighbouring rows are as large as the values, so a wrong row or weight cannot hide.
    curve["adaln_t_table"] = config.normal("curve.adaln_t_table", (config.CURVE_ROWS, config.CURVE_RANK))
    return curve


# --------------------------------------------------------------------------------------------------- folders


def write_official(folder: Path, parts: dict[str, dict], encoder_config: dict) -> None:
    heads = config.TRANSFORMER["num_attention_heads"]
    storage.write_json(folder / "transformer/config.json", config.TRANSFORMER)
    official = names.transformer_to_official(parts["transformer"], heads, rope_inv_freq())
    storage.write_shards(folder / "transformer", official, "model", 2)

    storage.write_json(folder / "text_encoder/config.json", encoder_config)
    storage.write_shards(folder / "text_encoder", parts["text_encoder"], "model", 2)

    storage.write_json(folder / "video_vae/config.json", config.official_video_vae_config())
    storage.write_json(folder / "video_vae/source/config.json", config.VIDEO_VAE_SOURCE)
    decoder_heads = config.VIDEO_VAE_SOURCE["vit_decoder_kwargs"]["heads"]
    video_vae = names.video_vae_to_official(parts["video_vae"], decoder_heads)
    storage.write_tensors(folder / "video_vae/source/model.safetensors", video_vae, {"format": "pt"})

    storage.write_json(folder / "audio_vae/config.json", config.official_audio_vae_config())
    storage.write_json(folder / "audio_vae/metadata.json", config.official_audio_vae_metadata())
    (folder / "audio_vae/config.yaml").write_text(config.official_audio_vae_yaml())
    storage.write_tensors(folder / "audio_vae/model.safetensors", parts["audio_vae"], {"format": "pt"})

    storage.write_json(
        folder / "model_index.json",
        {
            "_class_name": "MiniMaxH3Pipeline",
            "_diffusers_version": "0.32.2",
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
                "sigma_shift_scales": {"video": 12.0, "audio": 3.0},
            },
        },
    )


def link(path: Path, target: str) -> None:
    """A relative symbolic link: the two layouts store these files alike, and one copy of the bytes is enough."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def write_diffusers(folder: Path, parts: dict[str, dict], official_name: str) -> None:
    version = {"_diffusers_version": "0.36.0.dev0"}
    stem = "diffusion_pytorch_model"
    storage.write_json(
        folder / "transformer/config.json",
        {"_class_name": "MiniMaxH3Transformer3DModel"} | version | config.diffusers_transformer_config(),
    )
    storage.write_shards(folder / "transformer", parts["transformer"], stem, 2)

    storage.write_json(
        folder / "vae/config.json",
        {"_class_name": "AutoencoderKLMiniMaxH3"} | version | config.diffusers_video_vae_config(),
    )
    storage.write_tensors(folder / f"vae/{stem}.safetensors", parts["video_vae"], {"format": "pt"})

    storage.write_json(
        folder / "audio_vae/config.json",
        {"_class_name": "AutoencoderKLMiniMaxH3Audio"} | version | config.diffusers_audio_vae_config(),
    )
    link(folder / f"audio_vae/{stem}.safetensors", f"../../{official_name}/audio_vae/model.safetensors")

    for name in sorted(path.name for path in (folder.parent / official_name / "text_encoder").iterdir()):
        link(folder / "text_encoder" / name, f"../../{official_name}/text_encoder/{name}")

    for name, shift in (("scheduler", 12.0), ("audio_scheduler", 3.0)):
        storage.write_json(
            folder / name / "scheduler_config.json", {"_class_name": "MiniMaxH3Scheduler"} | version | {"shift": shift}
        )

    def component(library: str, class_name: str, subfolder: str) -> list:
        """Library, class, and where to load from: the three-entry form of modular pipelines."""
        source = {
            "type_hint": [library, class_name],
            "pretrained_model_name_or_path": folder.name,
            "subfolder": subfolder,
            "variant": None,
            "revision": None,
        }
        return [library, class_name, source]

    storage.write_json(
        folder / "model_index.json",
        {"_class_name": "MiniMaxH3ModularPipeline"}
        | version
        | {
            "_blocks_class_name": "MiniMaxH3Blocks",
            "text_encoder": component("transformers", "Qwen3VLForConditionalGeneration", "text_encoder"),
            "tokenizer": component("transformers", "Qwen2TokenizerFast", "tokenizer"),
            "vae": component("diffusers", "AutoencoderKLMiniMaxH3", "vae"),
            "audio_vae": component("diffusers", "AutoencoderKLMiniMaxH3Audio", "audio_vae"),
            "transformer": component("diffusers", "MiniMaxH3Transformer3DModel", "transformer"),
            "scheduler": component("diffusers", "MiniMaxH3Scheduler", "scheduler"),
            "audio_scheduler": component("diffusers", "MiniMaxH3Scheduler", "audio_scheduler"),
        },
    )


def check_round_trips(golden: Path, official_name: str, diffusers_name: str, parts: dict[str, dict]) -> None:
    """Reads every folder back and compares bit for bit; the libraries' own loaders are one of the readers."""
    heads = config.TRANSFORMER["num_attention_heads"]
    official = storage.read_folder(golden / official_name / "transformer")
    names.require_same(names.transformer_from_official(official, heads), parts["transformer"], "transformer")
    plain = names.transformer_to_official(parts["transformer"], heads, rope_inv_freq(), interleaved=False)
    names.require_same(
        names.transformer_from_official(plain, heads, interleaved=False), parts["transformer"], "plain transformer"
    )
    by_library = MiniMaxH3Transformer3DModel.from_pretrained(
        golden / diffusers_name / "transformer", torch_dtype=torch.float32
    )
    names.require_same(
        dict(by_library.state_dict()), storage.to_float32(parts["transformer"]), "transformer by the library"
    )

    decoder_heads = config.VIDEO_VAE_SOURCE["vit_decoder_kwargs"]["heads"]
    official = storage.read_folder(golden / official_name / "video_vae/source")
    names.require_same(names.video_vae_from_official(official, decoder_heads), parts["video_vae"], "video VAE")
    for folder, kind, part in (
        ("vae", AutoencoderKLMiniMaxH3, "video_vae"),
        ("audio_vae", AutoencoderKLMiniMaxH3Audio, "audio_vae"),
    ):
        by_library = kind.from_pretrained(golden / diffusers_name / folder, torch_dtype=torch.float32)
        names.require_same(dict(by_library.state_dict()), storage.to_float32(parts[part]), f"{part} by the library")

    # The row numbers of the released shapes that the specification works out.
    rows = torch.arange(3 * 56 * 128).unsqueeze(1)
    assert int(names.split_qkv(rows, 56, interleaved=True)[1][2 * 128 + 3]) == 899
    assert int(names.split_qkv(rows, 56, interleaved=False)[1][2 * 128 + 3]) == 7427
    rows = torch.arange(3 * 32 * 64).unsqueeze(1)
    assert [int(part[69]) for part in names.split_qkv(rows, 32, interleaved=True)] == [197, 261, 325]
