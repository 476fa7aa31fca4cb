"""Names and row orders: from the diffusers layout to the official one (and ComfyUI's) and back.

A rule is a pair of patterns with `{i}`-style holes. Three kinds of tensors are not merely renamed: the fused query, key
and value rows, the two halves of the gated feed-forward, and tensors that exist on one side only.
"""

import re

import torch

TRANSFORMER_PAIRS = [
    # (diffusers prefix, official prefix), first match wins
    ("audio_proj_in.", "audio_patch_proj."),
    ("audio_proj_out.", "final_layer.audio_out."),
    ("proj_in.", "video_patch_proj."),
    ("proj_out.", "final_layer.video_out."),
    ("context_embedder.", "condition_proj."),
    ("time_embedder.linear_1.", "time_embedder.proj_in."),
    ("time_embedder.linear_2.", "time_embedder.proj_out."),
    ("norm_out.norm.", "final_layer.norm."),
    ("norm_out.linear.", "final_layer.adaln_proj.linear."),
    ("token_refiner.refiner_blocks.", "token_refiner.blocks."),
    ("token_refiner.final_norm.", "token_refiner.final_norm."),
    ("transformer_blocks.", "blocks."),
]
BLOCK_PAIRS = [
    (".attn.norm_q.", ".attn.q_norm."),
    (".attn.norm_k.", ".attn.k_norm."),
    (".attn.to_out.0.", ".attn.out_proj."),
    (".ff.net.2.", ".mlp.fc2."),
    (".ff.net.0.proj.", ".mlp.fc1."),
]

VIDEO_VAE_PAIRS = [
    (r"decoder\.proj_in\.(.*)", r"decoder.x_embedder.\1"),
    (r"(decoder\.transformer_blocks\.\d+\.attn\.to_out)\.0\.(.*)", r"\1.\2"),
    (r"(decoder\.transformer_blocks\.\d+\.ff)\.net\.0\.proj\.(.*)", r"\1.w1.\2"),
    (r"(decoder\.transformer_blocks\.\d+\.ff)\.net\.2\.(.*)", r"\1.w2.\2"),
    (r"encoder\.down_blocks\.(\d+)\.resnets\.(\d+)\.conv_shortcut\.(.*)", r"encoder.down.\1.block.\2.nin_shortcut.\3"),
    (r"encoder\.down_blocks\.(\d+)\.resnets\.(\d+)\.(.*)", r"encoder.down.\1.block.\2.\3"),
    (r"encoder\.down_blocks\.(\d+)\.downsamplers\.0\.(.*)", r"encoder.down.\1.downsample.\2"),
]


def swap_halves(tensor: torch.Tensor) -> torch.Tensor:
    """Value-first rows become gate-first rows, or the other way round."""
    first, second = tensor.chunk(2, dim=0)
    return torch.cat([second, first], dim=0)


def fuse_qkv(parts: list[torch.Tensor], heads: int, interleaved: bool) -> torch.Tensor:
    """Query, key and value rows in one tensor: head by head (interleaved) or one projection after the other."""
    if not interleaved:
        return torch.cat(parts, dim=0)
    by_head = [part.unflatten(0, (heads, -1)) for part in parts]  # 3 x [heads, head_dim, ...]
    return torch.stack(by_head, dim=1).flatten(0, 2)  # [heads, 3, head_dim, ...] -> [heads * 3 * head_dim, ...]


def split_qkv(fused: torch.Tensor, heads: int, interleaved: bool) -> list[torch.Tensor]:
    if not interleaved:
        return list(fused.chunk(3, dim=0))
    by_head = fused.unflatten(0, (heads, 3, -1))
    return [by_head[:, projection].flatten(0, 1) for projection in range(3)]


def _fuse_all(tensors: dict, name_of_part: re.Pattern, fused_name, heads: int, interleaved: bool) -> dict:
    """Replaces each complete to_q / to_k / to_v family by its fused tensor."""
    result = {}
    for name, tensor in tensors.items():
        match = name_of_part.fullmatch(name)
        if match is None:
            result[name] = tensor
        elif match.group(2) == "q":
            family = [tensors[f"{match.group(1)}to_{part}.{match.group(3)}"] for part in "qkv"]
            result[fused_name(match)] = fuse_qkv(family, heads, interleaved)
    return result


def _transformer_name(name: str) -> str:
    for theirs, ours in TRANSFORMER_PAIRS:
        if name.startswith(theirs):
            name = ours + name[len(theirs) :]
            break
    for theirs, ours in BLOCK_PAIRS:
        name = name.replace(theirs, ours)
    return name


def transformer_to_official(tensors: dict, heads: int, inv_freq: torch.Tensor, interleaved: bool = True) -> dict:
    """`interleaved=False` gives ComfyUI's order of the fused rows; all names are the same."""
    part = re.compile(r"(.*\.attn\.)to_([qkv])\.(weight)")
    fused = _fuse_all(tensors, part, lambda match: f"{match.group(1)}qkv_proj.weight", heads, interleaved)
    official = {}
    for name, tensor in fused.items():
        new_name = _transformer_name(name)
        official[new_name] = swap_halves(tensor) if ".mlp.fc1." in new_name else tensor
    official["rope.inv_freq"] = inv_freq
    return official


def transformer_from_official(tensors: dict, heads: int, interleaved: bool = True) -> dict:
    """Exact inverse, written from the official side so that the round trip checks both."""
    result = {}
    for name, tensor in tensors.items():
        if name == "rope.inv_freq":
            continue
        if ".mlp.fc1." in name:
            tensor = swap_halves(tensor)
        for theirs, ours in BLOCK_PAIRS:
            name = name.replace(ours, theirs)
        for theirs, ours in TRANSFORMER_PAIRS:
            if name.startswith(ours):
                name = theirs + name[len(ours) :]
                break
        if name.endswith(".attn.qkv_proj.weight"):
            stem = name.removesuffix("qkv_proj.weight")
            for letter, rows in zip("qkv", split_qkv(tensor, heads, interleaved)):
                result[f"{stem}to_{letter}.weight"] = rows
        else:
            result[name] = tensor
    return result


def video_vae_to_official(tensors: dict, heads: int) -> dict:
    part = re.compile(r"(decoder\.transformer_blocks\.\d+\.attn\.)to_([qkv])\.(weight|bias)")
    fused = _fuse_all(tensors, part, lambda match: f"{match.group(1)}to_qkv.{match.group(3)}", heads, True)
    official = {}
    for name, tensor in fused.items():
        for theirs, ours in VIDEO_VAE_PAIRS:
            if re.fullmatch(theirs, name):
                name = re.sub(theirs, ours, name)
                break
        official[name] = swap_halves(tensor) if ".ff.w1." in name else tensor
    # The official file carries this row although nothing reads it.
    official["decoder.mask_token"] = torch.zeros(1, 1, tensors["decoder.register_tokens"].shape[-1])
    return official


def video_vae_from_official(tensors: dict, heads: int) -> dict:
    result = {}
    for name, tensor in tensors.items():
        if name == "decoder.mask_token":
            continue
        name = name.replace("decoder.x_embedder.", "decoder.proj_in.")
        match = re.fullmatch(r"encoder\.down\.(\d+)\.(block|downsample)\.(.*)", name)
        if match is not None:
            kind = "resnets." if match.group(2) == "block" else "downsamplers.0."
            tail = match.group(3).replace("nin_shortcut", "conv_shortcut")
            name = f"encoder.down_blocks.{match.group(1)}.{kind}{tail}"
        match = re.fullmatch(r"(decoder\.transformer_blocks\.\d+\.)(attn|ff)\.(to_qkv|to_out|w1|w2)\.(.*)", name)
        if match is None:
            result[name] = tensor
            continue
        stem, _, module, leaf = match.groups()
        if module == "to_qkv":
            for letter, rows in zip("qkv", split_qkv(tensor, heads, True)):
                result[f"{stem}attn.to_{letter}.{leaf}"] = rows
        elif module == "to_out":
            result[f"{stem}attn.to_out.0.{leaf}"] = tensor
        elif module == "w1":
            result[f"{stem}ff.net.0.proj.{leaf}"] = swap_halves(tensor)
        else:
            result[f"{stem}ff.net.2.{leaf}"] = tensor
    return result


def require_same(left: dict, right: dict, what: str) -> None:
    """Bit-for-bit equality of two sets of tensors."""
    if left.keys() != right.keys():
        raise AssertionError(f"{what}: names differ: {sorted(left.keys() ^ right.keys())[:6]}")
    for name in left:
        if left[name].dtype != right[name].dtype or not torch.equal(left[name], right[name]):
            raise AssertionError(f"{what}: {name} differs")
