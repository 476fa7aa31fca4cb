"""Sigma grids and Euler steps of the reference scheduler."""

from pathlib import Path

import torch
from diffusers import MiniMaxH3Scheduler

import micro_config as config
import storage

GRID_POINTS = [2, 3, 5, 7, 9, 30, 50]
SHIFTS = [12.0, 3.0, 6.0]
# Explicit schedules, as a few-step recipe gives them.
EXPLICIT = {
    "taomate3.video": [1.0, 0.961165071, 0.853333294, 0.0],
    "fasth3_4.video": [0.999916553, 0.972832501, 0.923076928, 0.800000012, 0.0],
    "fasth3_4.audio": [0.999666393, 0.899519563, 0.75, 0.5, 0.0],
}


def write_goldens(golden: Path) -> None:
    tensors = {}
    for shift in SHIFTS:
        for points in GRID_POINTS:
            scheduler = MiniMaxH3Scheduler(shift=shift)
            scheduler.set_timesteps(points)
            key = f"grid.points_{points}.shift_{shift:g}"
            tensors[key + ".sigmas"] = scheduler.sigmas
            tensors[key + ".timesteps"] = scheduler.timesteps

    cases = {f"points_5.shift_{shift:g}": (shift, None) for shift in (12.0, 3.0)}
    cases |= {name: (1.0, sigmas) for name, sigmas in EXPLICIT.items()}
    for name, (shift, sigmas) in cases.items():
        scheduler = MiniMaxH3Scheduler(shift=shift)
        scheduler.set_timesteps(5, sigmas=sigmas)
        sample = config.normal(f"schedule.{name}.sample", (13, 7))
        key = f"euler.{name}"
        tensors[key + ".sigmas"] = scheduler.sigmas
        tensors[key + ".timesteps"] = scheduler.timesteps
        tensors[key + ".sample_0"] = sample
        for index, timestep in enumerate(scheduler.timesteps):
            velocity = config.normal(f"schedule.{name}.velocity_{index}", (13, 7))
            sample = scheduler.step(velocity, timestep, sample, return_dict=False)[0]
            tensors[f"{key}.velocity_{index}"] = velocity
            tensors[f"{key}.sample_{index + 1}"] = sample
    storage.write_tensors(golden / "schedule.safetensors", tensors)
