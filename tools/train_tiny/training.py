"""What all training stages share: wall-clock schedule, optimiser, checkpoints in small files."""

import json
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

SAVE_EVERY_MINUTES = 1.8  # a run that is cut short leaves something to go on from
SHARD_BYTES = 14 * 1024 * 1024


class Schedule:
    """A learning-rate schedule over wall-clock time, so that a stage fills the time it is given.

    A stage may be cut in pieces: `done_minutes` were trained before, this piece runs `minutes`,
    and the rate reaches zero at `total_minutes`. A process that was stopped for a while (so that
    something else could be timed on the GPU) does not lose that time: between two looks at the
    clock, which every step takes, at most MAX_STEP_S count. `wall_minutes` is a limit that stops do
    count against: where it comes first, the schedule is shortened so that the rate still reaches zero.
    """

    MAX_STEP_S = 10.0

    def __init__(self, minutes: float, total_minutes: float = 0, done_minutes: float = 0, wall_minutes: float = 0):
        self.start = self.last = time.monotonic()
        self.elapsed_s = 0.0
        self.minutes, self.done_minutes = minutes, done_minutes
        self.total_minutes = total_minutes or minutes
        self.wall_minutes = wall_minutes

    @classmethod
    def of(cls, args, spent_minutes: float = 0) -> "Schedule":
        """From the flags of add_arguments; `spent_minutes` went into the preparation of this piece."""
        minutes = max(0.0, args.minutes - spent_minutes)
        total = args.total_minutes or minutes
        return cls(minutes, total, args.done_minutes, max(0.01, args.wall_minutes - spent_minutes) if args.wall_minutes else 0)

    def elapsed_minutes(self) -> float:
        now = time.monotonic()
        self.elapsed_s += min(now - self.last, self.MAX_STEP_S)
        self.last = now
        return self.elapsed_s / 60

    def _lost_minutes(self, elapsed: float) -> float:
        """By how much the wall-clock limit shortens this piece."""
        if not self.wall_minutes:
            return 0.0
        left = self.wall_minutes - (self.last - self.start) / 60
        return max(0.0, self.minutes - elapsed - max(0.0, left))

    def finished(self) -> bool:
        elapsed = self.elapsed_minutes()
        return elapsed >= self.minutes - self._lost_minutes(elapsed)

    def factor(self, step: int) -> float:
        elapsed = self.elapsed_minutes()
        total = max(1e-6, self.total_minutes - self._lost_minutes(elapsed))
        progress = min(1.0, (self.done_minutes + elapsed) / total)
        decay = min(1.0, 1.35 * (1 - progress))  # flat for the first quarter, then linear to zero
        return min(1.0, (step + 1) / 200) * decay


def orthogonalise(matrices):
    """Newton-Schulz iteration towards the nearest orthogonal matrices, [n, rows, columns]."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.transpose(1, 2)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.transpose(1, 2) if tall else x).float()


class Muon(torch.optim.Optimizer):
    """Momentum with orthogonalised updates for weight matrices.

    Updates are scaled to the root mean square that Adam's have, so both share a learning rate.
    """

    def __init__(self, parameters, lr, momentum=0.95):
        super().__init__(list(parameters), {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            by_shape = {}
            for parameter in group["params"]:
                by_shape.setdefault(parameter.shape, []).append(parameter)
            for shape, parameters in by_shape.items():
                gradient = torch.stack([p.grad for p in parameters])
                state = self.state[parameters[0]]
                momentum = state.setdefault("momentum", torch.zeros_like(gradient))
                momentum.lerp_(gradient, 1 - group["momentum"])
                update = orthogonalise(gradient.lerp(momentum, group["momentum"]))
                update *= -group["lr"] * 0.2 * max(shape) ** 0.5
                torch._foreach_add_(parameters, list(update.unbind()))


class Optimiser:
    """Muon for `matrices`, Adam for the rest, one schedule, clipped gradients."""

    def __init__(self, module: nn.Module, matrices, muon_lr: float, adam_lr: float):
        matrices = list(matrices)
        chosen = {id(p) for p in matrices}
        rest = [p for p in module.parameters() if p.requires_grad and id(p) not in chosen]
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        fused = self.parameters[0].is_cuda
        self.parts = [(torch.optim.Adam(rest, lr=adam_lr, betas=(0.9, 0.98), fused=fused), adam_lr)]
        if chosen:
            self.parts.append((Muon(matrices, muon_lr), muon_lr))

    def step(self, factor: float):
        norm = nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for part, lr in self.parts:
            for group in part.param_groups:
                group["lr"] = lr * factor
            part.step()
            part.zero_grad(set_to_none=True)
        return norm


def save(tensors: dict, folder: Path, name: str, float32: tuple | None = None) -> None:
    """Writes tensors as `name`-0.safetensors, -1, ... of at most 14 MiB each.

    All float32; or, where `float32` is given, bfloat16 as in the exported model, except for names that
    begin with one of those: half the size for the way to another machine. Files appear under their names only when complete, so that a run may be killed at any time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shards, size = [{}], 0
    for key, tensor in tensors.items():
        kept = float32 is None or key.startswith(float32)
        tensor = tensor.detach().to(torch.float32 if kept else torch.bfloat16).cpu().contiguous()
        if size + tensor.nbytes > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][key] = tensor
        size += tensor.nbytes
    for index, shard in enumerate(shards):
        save_file(shard, folder / f"{name}-{index}.part")
    for index in range(len(shards)):
        (folder / f"{name}-{index}.part").rename(folder / f"{name}-{index}.safetensors")
    for stale in folder.glob(f"{name}-*.safetensors"):
        if int(stale.stem.rsplit("-", 1)[1]) >= len(shards):
            stale.unlink()


def load(folder: Path, name: str) -> dict:
    """What save() wrote, as float32."""
    files = sorted(Path(folder).glob(f"{name}-*.safetensors"))
    if not files:
        raise FileNotFoundError(f"no {name}-*.safetensors in {folder}")
    return {key: tensor.float() for file in files for key, tensor in load_file(file).items()}


class Log:
    """One JSON object a line, on the terminal and in a file."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.start = path, time.monotonic()

    def __call__(self, **fields):
        fields = {"s": round(time.monotonic() - self.start, 1), **fields}
        line = json.dumps({k: round(v, 5) if isinstance(v, float) else v for k, v in fields.items()})
        print(line, flush=True)
        with self.path.open("a") as file:
            file.write(line + "\n")


def add_arguments(parser) -> None:
    """Flags of every training stage."""
    parser.add_argument("--state", type=Path, default=Path("../../.train"), help="folder of all checkpoints")
    parser.add_argument("--minutes", type=float, required=True, help="how long this piece trains")
    parser.add_argument("--total-minutes", type=float, default=0, help="length of all pieces together")
    parser.add_argument("--done-minutes", type=float, default=0, help="trained before; resumes if above 0")
    parser.add_argument("--wall-minutes", type=float, default=0, help="end by then, whatever was lost to stops")
    parser.add_argument("--batch", type=int, default=0, help="clips a step (0: the stage's default)")
    parser.add_argument("--max-steps", type=int, default=0, help="stop early, for a smoke test")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
