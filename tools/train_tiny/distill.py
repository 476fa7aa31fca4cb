"""Distils a four-step adapter: a LoRA whose four Euler steps follow the teacher's fine trajectory.

The teacher integrates 48 steps from noise and leaves its state at the student's four knots. The
student is unrolled over all four steps from the same noise, so every step is trained on states it
will meet, and is pulled to the teacher at every knot. Needs captions, and pictures where clips begin with
a given one, but no clips.

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
from evaluate import first_pictures
from keyframes import picture_moments, present, random_keyframe, with_picture
from lora import add_lora, lora_parameters
from sampler import Conditioning, euler, sigma_grids
from scenes import sample_scenes
from train_dit import Conditioned, load_autoencoders
from training import SAVE_EVERY_MINUTES, Log, Optimiser, Schedule, add_arguments, load, save

STEPS, SUBSTEPS = 4, 12
# Captions alone in two geometries (the third differs from the first in length only), and clips of the first
# geometry that begin with a given picture.
TRAJECTORIES, BATCHES = (7168, 4096, 3072), (128, 88, 104)
TRAJECTORY_MINUTES = 0.9  # at most
TEACHER_BATCH = 256


class Trajectories:
    """Noise and the teacher's knots, video [n, 5, Nv, 96] and audio [n, 5, Na, 32], with captions; and with
    the rows of first frames where `presented` is given."""

    def __init__(self, geometry, capacity, model, device, presented=None):
        self.geometry, self.capacity, self.device = geometry, capacity, device
        self.presented = presented
        with torch.no_grad():
            self.rope_tables = RopeTables(model.dit, geometry, device, presented)
        self.parts, self.count = [], 0

    def captions(self, scenes, tokenizer, rng):
        """Ids and lengths; with pictures, half of the captions leave unsaid what is on them."""
        ids, lengths = tokenise(tokenizer, scenes, rng, wordings=1, unnamed=int(self.presented is not None))
        which = torch.randint(ids.shape[1], (len(ids),))
        chosen = torch.arange(len(ids))
        ids, lengths = ids[chosen, which].long().to(self.device), lengths[chosen, which].to(self.device)
        return with_picture(self.presented, ids, lengths)

    def keyframes(self, scenes, autoencoders):
        if self.presented is None:
            return torch.zeros(len(scenes), 0, 96, device=self.device)
        pictures = first_pictures(scenes.to(self.device), self.geometry)
        return random_keyframe(*picture_moments(autoencoders, pictures))

    def condition(self, model, ids, lengths, keyframe):
        return Conditioning(
            model.text_encoder, model.dit, ids, lengths, self.rope_tables(lengths),
            None if self.presented is None else keyframe, self.presented,
        )  # fmt: skip

    @torch.no_grad()
    def add(self, model, autoencoders, tokenizer, generator, rng, count, held_out=False):
        scenes = sample_scenes(count, generator, held_out)
        ids, lengths = self.captions(scenes, tokenizer, rng)
        keyframe = self.keyframes(scenes, autoencoders)
        video = torch.randn(count, self.geometry.video_rows, 96, device=self.device)
        audio = torch.randn(count, self.geometry.audio_rows, 32, device=self.device)
        knots_video, knots_audio = [video], [audio]
        sigmas = sigma_grids(STEPS * SUBSTEPS)
        with torch.autocast(self.device.type, torch.bfloat16):
            condition = self.condition(model, ids, lengths, keyframe)
            for k in range(STEPS):
                span = slice(k * SUBSTEPS, (k + 1) * SUBSTEPS + 1)
                video, audio = euler(model.dit, condition, video, audio, sigmas[0][span], sigmas[1][span])
                knots_video.append(video)
                knots_audio.append(audio)
        self.parts.append((torch.stack(knots_video, 1), torch.stack(knots_audio, 1), ids, lengths, keyframe))
        self.count += count

    def close(self):
        self.tensors = tuple(map(torch.cat, zip(*self.parts)))
        self.parts = None

    def batch(self, index):
        return tuple(tensor[index] for tensor in self.tensors)


def unrolled(model, trajectories, index):
    """The student's states after each step, and the teacher's: lists of (video, audio)."""
    video_knots, audio_knots, ids, lengths, keyframe = trajectories.batch(index)
    sigmas_video, sigmas_audio = sigma_grids(STEPS)
    video, audio, states = video_knots[:, 0], audio_knots[:, 0], []
    with torch.autocast(video.device.type, torch.bfloat16):
        with torch.no_grad():
            condition = trajectories.condition(model, ids, lengths, keyframe)
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
def final_distance(model, trajectories):
    """Relative distance of the student's final latents to the teacher's: (video, audio)."""
    sums = torch.zeros(4, device=trajectories.device)
    for start in range(0, trajectories.count, 64):
        index = torch.arange(start, min(start + 64, trajectories.count), device=trajectories.device)
        states, targets = unrolled(model, trajectories, index)
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
    schedule = Schedule.of(args)
    torch.manual_seed(args.seed + 4 + int(1000 * args.done_minutes))
    rng = random.Random(args.seed + 4 + int(1000 * args.done_minutes))
    generator = torch.Generator().manual_seed(args.seed + 4 + int(1000 * args.done_minutes))
    tokenizer = tokenizer_files.load(args.tokenizer)
    model = Conditioned()
    model.load_state_dict(load(args.state, "base"))
    model.to(device).requires_grad_(False)
    autoencoders = load_autoencoders(args.state, device)
    first, second = TRAIN_GEOMETRIES[:2]
    kinds = ((first, None), (second, None), (first, present(tokenizer, first)))
    sets = [
        Trajectories(geometry, max(2, int(n * args.trajectories_scale)), model, device, presented)
        for (geometry, presented), n in zip(kinds, TRAJECTORIES)
    ]
    validations = {
        "text": Trajectories(first, 128, model, device),
        "keyframe": Trajectories(first, 128, model, device, kinds[2][1]),
    }
    start = time.monotonic()
    for validation in validations.values():
        count = min(validation.capacity, sets[0].capacity)
        validation.add(model, autoencoders, tokenizer, generator, rng, count, held_out=True)
    while schedule.elapsed_minutes() < TRAJECTORY_MINUTES or not all(s.count for s in sets):
        which = min(range(len(sets)), key=lambda i: sets[i].count / sets[i].capacity)
        missing = sets[which].capacity - sets[which].count
        if not missing:
            break
        sets[which].add(model, autoencoders, tokenizer, generator, rng, min(TEACHER_BATCH, missing))
        if device.type == "cuda":
            torch.cuda.synchronize()
    for trajectories in (*sets, *validations.values()):
        trajectories.close()
    log(trajectories=[s.count for s in sets], teacher_s=time.monotonic() - start)

    add_lora(model.dit)
    if args.done_minutes:
        model.dit.load_state_dict(load(args.state, "adapter"), strict=False)
    model.to(device)

    def log_distances(step):
        distances = {kind: final_distance(model, validation) for kind, validation in validations.items()}
        log(step=step, held_out_distance={k: [round(v, 4) for v in d] for k, d in distances.items()})

    def save_state():
        adapter = {k.replace("._orig_mod", ""): v for k, v in lora_parameters(model.dit).items()}
        save(adapter, args.state, "adapter")

    log_distances(0)
    if device.type == "cuda":
        model.dit.compile_blocks()
    optimiser = Optimiser(model.dit, [], muon_lr=0, adam_lr=1e-3)
    step, saved = 0, 0.0
    while not schedule.finished() and not (args.max_steps and step >= args.max_steps):
        which = (0, 1, 0, 2)[step % 4]
        index = torch.randint(sets[which].count, (args.batch or BATCHES[which],), device=device)
        loss = trajectory_loss(*unrolled(model, sets[which], index))
        loss.backward()
        optimiser.step(schedule.factor(step))
        step += 1
        if step % 250 == 0 or step in (1, 50):
            log(step=step, loss=loss.item())
        if schedule.elapsed_minutes() > saved + SAVE_EVERY_MINUTES:
            saved = schedule.elapsed_minutes()
            save_state()
    save_state()
    log_distances(step)


if __name__ == "__main__":
    main()
