"""Velocities of the transformer, with the intermediate values that locate an error; full and curve-table form."""

from pathlib import Path

import torch
from torch import nn

import micro_config as config
import micro_model
import packing
import storage

# name: (layout arguments of packing.build, timestep pairs)
STEP_PAIRS = [(0.0, 0.0), (0.02702701091766357, 0.10000002384185791), (0.19999998807907104, 0.5)]
CASES = {
    "t2_4x6": (([1] * 3, 5, 64, 96, ()), STEP_PAIRS),
    "t7_6x4": (([1] * 6, 22, 96, 64, ()), STEP_PAIRS),
    "t12_4x6": (([1] * 11, 39, 64, 96, ()), STEP_PAIRS[1:2]),
    # Keyframe rows, text rows tagged as video, four distinct timesteps in one sequence.
    "keyframes": (([1, 0, 0, 1], 5, 64, 96, ("first", "last")), [(0.0769230723, 0.25), (0.9995, 0.75)]),
}
INPUT_NAMES = ("position_ids", "token_tags", "video_indices", "audio_indices", "text_indices")


class Recorder:
    """Keeps the outputs of named modules during one forward pass."""

    def __init__(self, modules: dict[str, nn.Module]):
        self.values: dict[str, torch.Tensor] = {}
        self.handles = [module.register_forward_hook(self._hook(name)) for name, module in modules.items()]

    def _hook(self, name: str):
        def keep(module, inputs, output):
            self.values[name] = output.detach().clone()

        return keep

    def close(self) -> dict[str, torch.Tensor]:
        for handle in self.handles:
            handle.remove()
        return self.values


def curve_lookup(table: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
    """Row of the table at each timestep: linear between grid rows, time clamped to [0, 1], all float32."""
    last = table.shape[0] - 1
    position = timesteps.float().clamp(0, 1) * last
    index = position.floor().clamp(max=last - 1).long()
    weight = (position - index).unsqueeze(1)
    return table[index] + weight * (table[index + 1] - table[index])


class CurveTime(nn.Module):
    """Stands where the time MLP stood: its input is the timestep itself."""

    def __init__(self, table: torch.Tensor):
        super().__init__()
        self.table = nn.Parameter(table)

    def forward(self, timesteps: torch.Tensor) -> torch.Tensor:
        return curve_lookup(self.table, timesteps)


class CurveModulation(nn.Module):
    """Block modulation without activation: the table holds values that are past it."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor):
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, curve: torch.Tensor):
        rows = nn.functional.linear(curve, self.weight, self.bias)
        return rows.unflatten(1, (config.NUM_MODALITIES, -1)).flatten(0, 1).chunk(6, dim=1)


class CurveNormOut(nn.Module):
    """Final norm with shift and scale from the curve, one row per timestep."""

    def __init__(self, norm: nn.Module, weight: torch.Tensor, bias: torch.Tensor):
        super().__init__()
        self.norm = norm
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, hidden: torch.Tensor, curve: torch.Tensor, timestep_indices: torch.Tensor) -> torch.Tensor:
        shift, scale = nn.functional.linear(curve, self.weight, self.bias)[timestep_indices].chunk(2, dim=1)
        return self.norm(hidden) * (1 + scale) + shift


def to_curve_form(model, curve: dict[str, torch.Tensor]):
    """The library's trunk with the three time-dependent parts replaced by the curve form."""
    curve = storage.to_float32(curve)
    model.time_proj = nn.Identity()
    model.time_embedder = CurveTime(curve["adaln_t_table"])
    for index, block in enumerate(model.transformer_blocks):
        stem = f"blocks.{index}.adaln_proj.linear"
        block.adaln_proj = CurveModulation(curve[stem + ".weight"], curve[stem + ".bias"])
    stem = "final_layer.adaln_proj.linear"
    model.norm_out = CurveNormOut(model.norm_out.norm, curve[stem + ".weight"], curve[stem + ".bias"])
    return model.eval().requires_grad_(False)


def run_cases(model, prefix: str, names=tuple(CASES)) -> dict[str, torch.Tensor]:
    """Inputs are stored once, with the results of the full form (no prefix)."""
    tensors = {}
    for name in names:
        arguments, pairs = CASES[name]
        layout = packing.build(*arguments)
        video_width = config.TRANSFORMER["latents_dim"] * 4
        inputs = {
            "video_rows": config.normal(f"dit.{name}.video", (layout["video_indices"].numel(), video_width)),
            "audio_rows": config.normal(
                f"dit.{name}.audio", (layout["audio_indices"].numel(), config.TRANSFORMER["audio_latents_dim"])
            ),
            "text_states": config.normal(
                f"dit.{name}.text", (layout["text_indices"].numel(), config.TRANSFORMER["text_dim"]), 2.0
            ),
        }
        if not prefix:
            tensors |= {f"{name}.{key}": value for key, value in inputs.items()}
            tensors |= {f"{name}.{key}": layout[key] for key in INPUT_NAMES}
        for index, pair in enumerate(pairs):
            timesteps, timestep_indices = packing.row_timesteps(layout, *pair)
            recorder = Recorder(
                {
                    "temb": model.time_embedder,
                    "refiner": model.token_refiner,
                    "block_0": model.transformer_blocks[0],
                    "block_last": model.transformer_blocks[-1],
                    "video_head_input": model.norm_out,
                }
            )
            with torch.no_grad():
                video, audio = model(
                    hidden_states=inputs["video_rows"][None],
                    audio_hidden_states=inputs["audio_rows"][None],
                    encoder_hidden_states=inputs["text_states"][None],
                    timestep=timesteps,
                    timestep_indices=timestep_indices,
                    return_dict=False,
                    **{key: layout[key] for key in INPUT_NAMES},
                )
            inner = recorder.close()
            key = f"{prefix}{name}.step_{index}"
            tensors[f"{key}.timesteps"] = timesteps
            tensors[f"{key}.timestep_indices"] = timestep_indices
            tensors[f"{key}.video_velocity"] = video[0]
            tensors[f"{key}.audio_velocity"] = audio[0]
            tensors[f"{key}.temb"] = inner["temb"]
            if index == 0 and not prefix:
                tensors[f"{name}.refiner"] = inner["refiner"][0]
            if name == "t2_4x6" or (name == "keyframes" and index == 0):
                tensors[f"{key}.block_0"] = inner["block_0"][0]
                tensors[f"{key}.block_last"] = inner["block_last"][0]
                tensors[f"{key}.norm_out"] = inner["video_head_input"][0]
    return tensors


def rope_goldens(model) -> dict[str, torch.Tensor]:
    """Angles of the packed positions, before and after the cosine."""
    layout = packing.build(*packing.LAYOUTS["t2va_wide"])
    cosine, sine = model.rope(layout["position_ids"])
    return {"rope.position_ids": layout["position_ids"], "rope.cos": cosine, "rope.sin": sine}


def write_goldens(golden: Path, parts: dict[str, dict]) -> None:
    model = micro_model.load_transformer(parts["transformer"])
    storage.write_tensors(golden / "dit.safetensors", run_cases(model, "") | rope_goldens(model))

    curve = micro_model.curve_transformer_tensors(parts["transformer"])
    folder = golden / "h3-micro-pruned"
    storage.write_tensors(folder / "transformer.safetensors", curve, {"format": "pt"})
    model = to_curve_form(micro_model.load_transformer(parts["transformer"]), curve)
    tensors = run_cases(model, "curve.", ("t2_4x6", "keyframes"))
    times = torch.tensor([0.0, 1e-4, 0.3, 0.5, 0.75, 0.999, 1.0, 1.2, -0.1, 0.027027011])
    tensors["lookup.timesteps"] = times
    tensors["lookup.rows"] = curve_lookup(curve["adaln_t_table"], times)
    # The specification's worked example of the lookup.
    rows = torch.arange(5, dtype=torch.float32)
    example = curve_lookup(torch.stack([0.5 * rows, 1 - 0.25 * rows], dim=1), torch.tensor([0.3, 0.999, 1.0, 1.2]))
    expected = torch.tensor([[0.6, 0.7], [1.998, 0.001], [2, 0], [2, 0]])
    torch.testing.assert_close(example, expected, rtol=0, atol=1e-6)
    storage.write_tensors(golden / "dit_curve.safetensors", tensors)
