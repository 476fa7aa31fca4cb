"""Reading and writing of the files the goldens are made of: JSON, safetensors and sharded safetensors."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def write_json(path: Path, value, indent: int | None = 2) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str] | None = None) -> None:
    """One safetensors file. Views are made contiguous, because the format stores plain row-major data.

    At most one metadata entry: the library writes several in random order, and files should come out the same.
    """
    if metadata is not None and len(metadata) > 1:
        raise ValueError("more than one metadata entry makes the file bytes random")
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, path, metadata)
    path.chmod(0o644)  # the library makes it private to the user


def write_shards(folder: Path, tensors: dict[str, torch.Tensor], stem: str, num_shards: int) -> None:
    """Shards of about equal size in the order of `tensors`, with the index file that names the shard of each tensor."""
    total_size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    shards: list[dict[str, torch.Tensor]] = [{}]
    filled = 0
    for name, tensor in tensors.items():
        if filled >= total_size * len(shards) / num_shards:
            shards.append({})
        shards[-1][name] = tensor
        filled += tensor.numel() * tensor.element_size()
    weight_map = {}
    for index, shard in enumerate(shards):
        file_name = f"{stem}-{index + 1:05d}-of-{len(shards):05d}.safetensors"
        write_tensors(folder / file_name, shard, {"format": "pt"})
        weight_map.update({name: file_name for name in shard})
    index = {"metadata": {"total_size": total_size}, "weight_map": dict(sorted(weight_map.items()))}
    write_json(folder / f"{stem}.safetensors.index.json", index)


def read_folder(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of all safetensors files of a folder."""
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors.update(load_file(path))
    return tensors


def to_float32(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.float() for name, tensor in tensors.items()}
