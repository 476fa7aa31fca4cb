"""Trains text encoder and transformer together by flow matching on latents of the frozen VAEs.

    python train_dit.py --minutes 8 --tokenizer ../../models/h3-tiny/tokenizer
"""

import argparse
import random
import time
from pathlib import Path

import torch
from torch import nn

import tokenizer as tokenizer_files
from audio_vae import AudioVae
from clips import Autoencoders, ClipStore, RopeTables
from config import AUDIO_SHIFT, TRAIN_GEOMETRIES, VIDEO_SHIFT
from dit import FLOAT32_TENSORS, Dit
from keyframes import present
from sampler import Conditioning, shifted
from text_encoder import TextEncoder
from training import SAVE_EVERY_MINUTES, Log, Optimiser, Schedule, add_arguments, load, save
from video_vae import VideoVae

CLIPS = (14336, 6144, 4096)  # stored per geometry
BATCHES = (256, 176, 184)  # about equally many rows
KEYFRAME_BATCHES = (208, 148)  # clips that begin with a given picture: of the first two geometries
GEOMETRY_WEIGHTS = (0.55, 0.3, 0.15)
FILL_CHUNK, FILL_MINUTES = 256, 1.2  # then training starts, full or not
REFRESH_CLIPS, REFRESH_S_PER_STEP = 64, 0.006  # fresh clips may take this share of each step
AUDIO_WEIGHT = 1.0
FLOAT32_BASE = tuple(f"dit.{name}" for name in FLOAT32_TENSORS)
LOW_NOISE_SHARE, LOW_NOISE_B = 0.15, 0.15


class Conditioned(nn.Module):
    """Text encoder and transformer as one module with disjoint parameter names."""

    def __init__(self):
        super().__init__()
        self.text_encoder, self.dit = TextEncoder(), Dit()

    def matrices(self):
        """Weights for the orthogonalised optimiser: those inside blocks, without AdaLN."""
        for part in (self.dit.blocks, self.dit.token_refiner, self.text_encoder.layers):
            for name, parameter in part.named_parameters():
                if parameter.ndim == 2 and "adaln" not in name:
                    yield parameter


def load_autoencoders(folder, device) -> Autoencoders:
    return Autoencoders(VideoVae(), AudioVae(), load(folder, "video_vae"), load(folder, "audio_vae"), device)


def sample_base_noise_level(count, device):
    """b in (0, 1], stratified; some extra weight near 0, which a uniform grid jumps across."""
    b = (torch.randperm(count, device=device) + torch.rand(count, device=device)) / count
    low = torch.rand(count, device=device) < LOW_NOISE_SHARE
    return torch.where(low, b * LOW_NOISE_B, b)


def flow_loss(model, batch, rope_tables, presented=None):
    """(video loss, audio loss) of one batch at random noise levels."""
    video, audio, ids, lengths, keyframe = batch
    b = sample_base_noise_level(len(video), video.device)
    sigma_video, sigma_audio = shifted(b, VIDEO_SHIFT), shifted(b, AUDIO_SHIFT)
    noise_video, noise_audio = torch.randn_like(video), torch.randn_like(audio)
    with torch.autocast(video.device.type, torch.bfloat16):
        condition = Conditioning(
            model.text_encoder, model.dit, ids, lengths, rope_tables(lengths), keyframe, presented
        )
        v_video, v_audio = model.dit(
            torch.lerp(video, noise_video, sigma_video[:, None, None]),
            torch.lerp(audio, noise_audio, sigma_audio[:, None, None]),
            condition.text, 1 - sigma_video, 1 - sigma_audio, condition.rope, condition.mask,
            keyframe, presented,
        )  # fmt: skip
    loss_video = (v_video - (video - noise_video)).square().mean()
    loss_audio = (v_audio - (audio - noise_audio)).square().mean()
    return loss_video, loss_audio


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--clips-scale", type=float, default=1.0, help="shrinks the clip store for a smoke test")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--resume", action="store_true", help="start from the state's weights, with a new schedule")
    parser.add_argument("--first-frame-share", type=float, default=0.3, help="steps conditioned on a first frame")
    parser.add_argument("--hard-share", type=float, default=0.0, help="see sample_scenes")
    args = parser.parse_args()
    device, log = torch.device(args.device), Log(args.state / "dit.log")
    schedule = Schedule.of(args)
    torch.manual_seed(args.seed + int(1000 * args.done_minutes))
    torch.backends.cudnn.benchmark = True
    autoencoders = load_autoencoders(args.state, device)
    tokenizer = tokenizer_files.load(args.tokenizer)
    rng = random.Random(args.seed + int(1000 * args.done_minutes))
    generator = torch.Generator().manual_seed(args.seed + 2 + int(1000 * args.done_minutes))

    model = Conditioned()
    if args.done_minutes or args.resume:
        model.load_state_dict(load(args.state, "base"))
    model.to(device)
    stores = [
        ClipStore(geometry, max(2, int(count * args.clips_scale)), device)
        for geometry, count in zip(TRAIN_GEOMETRIES, CLIPS)
    ]
    pictures = [present(tokenizer, geometry) for geometry in TRAIN_GEOMETRIES[: len(KEYFRAME_BATCHES)]]
    with torch.no_grad():
        tables = [RopeTables(model.dit, geometry, device) for geometry in TRAIN_GEOMETRIES]
        keyframe_tables = [RopeTables(model.dit, g, device, p) for g, p in zip(TRAIN_GEOMETRIES, pictures)]
    fill_start = time.monotonic()
    while schedule.elapsed_minutes() < FILL_MINUTES or not all(store.filled for store in stores):
        store = min(stores, key=lambda s: s.filled / s.capacity)
        if store.filled == store.capacity:
            break
        missing = store.capacity - store.filled
        store.add(min(FILL_CHUNK, missing), autoencoders, tokenizer, generator, rng, args.hard_share)
        if device.type == "cuda":
            torch.cuda.synchronize()
    filled = [store.filled for store in stores]
    s_per_clip = (time.monotonic() - fill_start) / sum(filled)
    refresh_every_steps = max(4, round(REFRESH_CLIPS * s_per_clip / REFRESH_S_PER_STEP))
    log(filled=filled, s_per_clip=s_per_clip, refresh_every_steps=refresh_every_steps)
    if not args.no_compile and device.type == "cuda":
        model.dit.compile_blocks()
    optimiser = Optimiser(model, model.matrices(), muon_lr=2e-3, adam_lr=2e-3)

    def save_state():
        tensors = {k.replace("._orig_mod", ""): v for k, v in model.state_dict().items()}
        save(tensors, args.state, "base", FLOAT32_BASE)

    step, saved = 0, 0.0
    averages = {}  # of the losses of plain clips, and of those that begin with a picture
    while not schedule.finished() and not (args.max_steps and step >= args.max_steps):
        which = rng.choices(range(len(stores)), GEOMETRY_WEIGHTS)[0]
        from_picture = rng.random() < args.first_frame_share
        if from_picture:
            which = which % len(pictures)
            batch = stores[which].batch(args.batch or KEYFRAME_BATCHES[which], pictures[which])
            loss_video, loss_audio = flow_loss(model, batch, keyframe_tables[which], pictures[which])
        else:
            batch = stores[which].batch(args.batch or BATCHES[which])
            loss_video, loss_audio = flow_loss(model, batch, tables[which])
        (loss_video + AUDIO_WEIGHT * loss_audio).backward()
        optimiser.step(schedule.factor(step))
        losses = torch.stack([loss_video.detach(), loss_audio.detach()])
        kind = "keyframe" if from_picture else "text"
        averages[kind] = averages[kind].lerp(losses, 0.02) if kind in averages else losses
        step += 1
        if step % refresh_every_steps == 0 and not args.max_steps:
            store = rng.choices(stores, GEOMETRY_WEIGHTS)[0]
            store.add(REFRESH_CLIPS, autoencoders, tokenizer, generator, rng, args.hard_share)
        if step % 1000 == 0 or step in (1, 100):
            log(step=step, **{kind: losses.tolist() for kind, losses in averages.items()})
        if schedule.elapsed_minutes() > saved + SAVE_EVERY_MINUTES:
            saved = schedule.elapsed_minutes()
            save_state()
    log(step=step, **{kind: losses.tolist() for kind, losses in averages.items()})
    save_state()


if __name__ == "__main__":
    main()
