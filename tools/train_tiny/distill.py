"""Distils a four-step adapter: a LoRA whose four Euler steps follow the teacher's fine trajectory.

The teacher integrates 48 steps from noise and leaves its state at the student's four knots. The
student is unrolled over all four steps from the same noise, so every step is trained on states it
will meet, and is pulled to the teacher at every knot. Needs captions but no clips.

    python distill.py --minutes 4 --tokenizer ../../models/h3-tiny/tokenizer
"""

import argparse
import random
import time
from pathlib import Path

import torch

import tokenizer as tokenizer_files
from clips import RopeTables, tokenise
from config import TRAIN_GEOMETRIES
from lora import add_lora, lora_parameters
from sampler import Conditioning, euler, sigma_grids
from scenes import sample_scenes
from train_dit import Conditioned
from training import Log, Optimiser, Schedule, add_arguments, load, save

STEPS, SUBSTEPS = 4, 12
TRAJECTORIES = (7168, 4096)  # per geometry; the third differs from the first in length only
TRAJECTORY_MINUTES = 0.6  # at most
TEACHER_BATCH, BATCHES = 256, (128, 88)


class Trajectories:
    """Noise and the teacher's knots, video [n, 5, Nv, 96] and audio [n, 5, Na, 32], with captions."""

    def __init__(self, geometry, capacity, device):
        self.geometry, self.capacity, self.device = geometry, capacity, device
        self.parts, self.count = [], 0

    @torch.no_grad()
    def add(self, model, rope_tables, tokenizer, generator, rng, count, held_out=False):
        ids, lengths = tokenise(tokenizer, sample_scenes(count, generator, held_out), rng, wordings=1)
        ids, lengths = ids[:, 0].long().to(self.device), lengths[:, 0].to(self.device)
        video = torch.randn(count, self.geometry.video_rows, 96, device=self.device)
        audio = torch.randn(count, self.geometry.audio_rows, 32, device=self.device)
        knots_video, knots_audio = [video], [audio]
        sigmas = sigma_grids(STEPS * SUBSTEPS)
        with torch.autocast(self.device.type, torch.bfloat16):
            condition = Conditioning(model.text_encoder, model.dit, ids, lengths, rope_tables(lengths))
            for k in range(STEPS):
                span = slice(k * SUBSTEPS, (k + 1) * SUBSTEPS + 1)
                video, audio = euler(model.dit, condition, video, audio, sigmas[0][span], sigmas[1][span])
                knots_video.append(video)
                knots_audio.append(audio)
        self.parts.append((torch.stack(knots_video, 1), torch.stack(knots_audio, 1), ids, lengths))
        self.count += count

    def close(self):
        self.video, self.audio, self.ids, self.lengths = map(torch.cat, zip(*self.parts))
        self.parts = None

    def batch(self, index):
        return self.video[index], self.audio[index], self.ids[index], self.lengths[index]


def unrolled(model, batch, rope_tables):
    """The student's states after each step, and the teacher's: lists of (video, audio)."""
    video_knots, audio_knots, ids, lengths = batch
    sigmas_video, sigmas_audio = sigma_grids(STEPS)
    video, audio, states = video_knots[:, 0], audio_knots[:, 0], []
    with torch.autocast(video.device.type, torch.bfloat16):
        with torch.no_grad():
            condition = Conditioning(model.text_encoder, model.dit, ids, lengths, rope_tables(lengths))
        for k in range(STEPS):
            span = slice(k, k + 2)
            video, audio = euler(model.dit, condition, video, audio, sigmas_video[span], sigmas_audio[span])
            states.append((video, audio))
    return states, [(video_knots[:, k + 1], audio_knots[:, k + 1]) for k in range(STEPS)]


def trajectory_loss(states, targets):
    """Squared distance at every knot, in units of the clean signal that the state contains."""
    sigmas_video, sigmas_audio = sigma_grids(STEPS)
    loss = 0
    for k, ((video, audio), (video_target, audio_target)) in enumerate(zip(states, targets)):
        signal_video, signal_audio = 1 - sigmas_video[k + 1], 1 - sigmas_audio[k + 1]
        loss = loss + (video - video_target).square().mean() / float(signal_video) ** 2
        loss = loss + (audio - audio_target).square().mean() / float(signal_audio) ** 2
    return loss


@torch.no_grad()
def final_distance(model, trajectories, rope_tables):
    """Relative distance of the student's final latents to the teacher's: (video, audio)."""
    sums = torch.zeros(4, device=trajectories.device)
    for start in range(0, trajectories.count, 64):
        index = torch.arange(start, min(start + 64, trajectories.count), device=trajectories.device)
        states, targets = unrolled(model, trajectories.batch(index), rope_tables)
        (video, audio), (video_target, audio_target) = states[-1], targets[-1]
        pairs = ((video - video_target, video_target), (audio - audio_target, audio_target))
        sums += torch.stack([part.square().sum() for pair in pairs for part in pair])
    return (sums[0] / sums[1]).sqrt().item(), (sums[2] / sums[3]).sqrt().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--trajectories-scale", type=float, default=1.0, help="fewer for a smoke test")
    args = parser.parse_args()
    device, log = torch.device(args.device), Log(args.state / "distill.log")
    schedule = Schedule(args.minutes, args.total_minutes, args.done_minutes)
    torch.manual_seed(args.seed + 4 + int(1000 * args.done_minutes))
    rng = random.Random(args.seed + 4 + int(1000 * args.done_minutes))
    generator = torch.Generator().manual_seed(args.seed + 4 + int(1000 * args.done_minutes))
    tokenizer = tokenizer_files.load(args.tokenizer)
    model = Conditioned()
    model.load_state_dict(load(args.state, "base"))
    model.to(device).requires_grad_(False)
    geometries = TRAIN_GEOMETRIES[:2]
    with torch.no_grad():
        tables = [RopeTables(model.dit, geometry, device) for geometry in geometries]
    sets = [
        Trajectories(geometry, max(2, int(n * args.trajectories_scale)), device)
        for geometry, n in zip(geometries, TRAJECTORIES)
    ]
    validation = Trajectories(geometries[0], 128, device)
    start = time.monotonic()
    count = min(validation.capacity, sets[0].capacity)
    validation.add(model, tables[0], tokenizer, generator, rng, count, held_out=True)
    while schedule.elapsed_minutes() < TRAJECTORY_MINUTES or not all(s.count for s in sets):
        which = min(range(len(sets)), key=lambda i: sets[i].count / sets[i].capacity)
        missing = sets[which].capacity - sets[which].count
        if not missing:
            break
        sets[which].add(model, tables[which], tokenizer, generator, rng, min(TEACHER_BATCH, missing))
        if device.type == "cuda":
            torch.cuda.synchronize()
    for trajectories in (*sets, validation):
        trajectories.close()
    log(trajectories=[s.count for s in sets], teacher_s=time.monotonic() - start)

    add_lora(model.dit)
    if args.done_minutes:
        model.dit.load_state_dict(load(args.state, "adapter"), strict=False)
    model.to(device)
    video, audio = final_distance(model, validation, tables[0])
    log(step=0, held_out_video_distance=video, held_out_audio_distance=audio)
    if device.type == "cuda":
        model.dit.compile_blocks()
    optimiser = Optimiser(model.dit, [], muon_lr=0, adam_lr=1e-3)
    step = 0
    while not schedule.finished() and not (args.max_steps and step >= args.max_steps):
        which = int(step % 3 == 2)
        index = torch.randint(sets[which].count, (args.batch or BATCHES[which],), device=device)
        loss = trajectory_loss(*unrolled(model, sets[which].batch(index), tables[which]))
        loss.backward()
        optimiser.step(schedule.factor(step))
        step += 1
        if step % 250 == 0 or step in (1, 50):
            log(step=step, loss=loss.item())
    video, audio = final_distance(model, validation, tables[0])
    log(step=step, held_out_video_distance=video, held_out_audio_distance=audio)
    adapter = {k.replace("._orig_mod", ""): v for k, v in lora_parameters(model.dit).items()}
    save(adapter, args.state, "adapter")


if __name__ == "__main__":
    main()
