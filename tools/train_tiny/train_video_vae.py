"""Trains the video VAE on freshly drawn windows.

    python train_video_vae.py --minutes 7
    python train_video_vae.py --minutes 7 --resume --hard-share 0.3 --shape-weight 8 --kl 1e-4
"""

import argparse
import time

import torch
import torch.nn.functional as F

from config import DEFAULT_GEOMETRY, TRAIN_GEOMETRIES
from render import render, render_with_coverage
from scenes import sample_scenes
from training import SAVE_EVERY_MINUTES, Log, Optimiser, Schedule, add_arguments, load, save
from video_vae import HEAD, TAIL, VideoVae

KL_WEIGHT = 2e-4
WINDOW_FRAMES = 22  # real frames of seven latents
EVALUATION_CLIPS = 16


def pixel_weights(alpha, shape_weight):
    """Weights [batch, frames, height, width, 1] of mean 1: more on the shape and two pixels around.

    A small shape covers one pixel in a hundred: without this its outline hardly counts.
    """
    near = F.max_pool2d((alpha > 0).float(), kernel_size=5, stride=1, padding=2)
    weights = 1 + shape_weight * near
    return (weights / weights.mean())[..., None]


def loss_of(vae, frames, weights, kl_weight):
    """Frames [batch, 22, ...] in [0, 1] -> (loss, reconstruction error, mean KL)."""
    mean, log_variance = vae.encode_moments(frames)
    z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
    decoded = vae.decode_window(z).float()
    error = torch.cat([decoded[:, HEAD], decoded[:, TAIL]], dim=1) - vae.normalise_pixels(frames)
    kl = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).mean()
    weighted = (weights * (error.abs() + error.square())).mean()
    return weighted + kl_weight * kl, error.square().mean(), kl


@torch.no_grad()
def reconstruction_psnr(vae, geometry, device) -> float:
    """Mean PSNR in dB over whole held-out clips, decoded from the posterior mean."""
    scenes = sample_scenes(EVALUATION_CLIPS, torch.Generator().manual_seed(99), held_out=True)
    values = []
    for index in range(0, EVALUATION_CLIPS, 4):
        frames = render(scenes[index : index + 4].to(device), geometry)
        decoded = vae.decode(vae.encode_moments(frames)[0])
        error = (decoded - frames).square().flatten(1).mean(1)
        values += (-10 * error.log10()).tolist()
    return sum(values) / len(values)


@torch.no_grad()
def latent_statistics(vae, device, batches=16):
    """Per-channel mean and deviation of sampled latents over training clips."""
    generator, sums = torch.Generator().manual_seed(7), []
    for _ in range(batches):
        frames = render(sample_scenes(8, generator).to(device), DEFAULT_GEOMETRY)
        mean, log_variance = vae.encode_moments(frames)
        mean, variance = mean.flatten(0, 3).double(), log_variance.exp().flatten(0, 3).double()
        sums.append(torch.stack([mean.mean(0), (mean.square() + variance).mean(0)]))
    first, second = torch.stack(sums).mean(0)
    return first.float(), (second - first.square()).sqrt().float()


def save_state(vae, device, args, log=None):
    """With the statistics that belong to these weights; log: tells the deviations."""
    mean, std = latent_statistics(vae, device, batches=1 if args.max_steps else 16)
    if log is not None:
        log(latents_std=[round(v, 3) for v in std.tolist()])
    save({**vae.state_dict(), "latents_mean": mean, "latents_std": std}, args.state, "video_vae")


class Batches:
    """Freshly drawn windows with their pixel weights, alternating between the two canvas sizes."""

    def __init__(self, args, device):
        self.args, self.device = args, device
        self.generator = torch.Generator().manual_seed(args.seed + 1 + int(1000 * args.done_minutes))

    def __call__(self, step):
        # The two 192x128 geometries look the same inside a window.
        geometry = TRAIN_GEOMETRIES[1] if step % 3 == 2 else DEFAULT_GEOMETRY
        batch = self.args.batch or 24
        count = batch if geometry == DEFAULT_GEOMETRY else max(1, batch * 3 // 5)
        scenes = sample_scenes(count, self.generator, hard_share=self.args.hard_share).to(self.device)
        first = int(torch.randint(geometry.frames - WINDOW_FRAMES + 1, (1,), generator=self.generator))
        frames, alpha = render_with_coverage(scenes, geometry, first, WINDOW_FRAMES)
        return frames, pixel_weights(alpha, self.args.shape_weight)


def main():
    begin = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--resume", action="store_true", help="start from the state's weights, with a new schedule")
    parser.add_argument("--hard-share", type=float, default=0.0, help="see sample_scenes")
    parser.add_argument("--shape-weight", type=float, default=0.0, help="extra loss on the shape's pixels")
    parser.add_argument("--kl", type=float, default=KL_WEIGHT)
    parser.add_argument("--rate", type=float, default=1.0, help="scales both learning rates")
    args = parser.parse_args()
    device, log = torch.device(args.device), Log(args.state / "video_vae.log")
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    vae = VideoVae()
    with torch.no_grad():
        vae.decoder.proj_out.weight.mul_(0.1)
    if args.done_minutes or args.resume:
        vae.load_state_dict(load(args.state, "video_vae"), strict=False)
    vae.to(device)
    matrices = [p for p in vae.decoder.transformer_blocks.parameters() if p.ndim == 2]
    optimiser = Optimiser(vae, matrices, muon_lr=2e-3 * args.rate, adam_lr=1e-3 * args.rate)
    batches = Batches(args, device)
    schedule = Schedule.of(args, spent_minutes=(time.monotonic() - begin) / 60)
    step, saved = 0, 0.0
    while not schedule.finished() and not (args.max_steps and step >= args.max_steps):
        frames, weights = batches(step)
        with torch.autocast(device.type, torch.bfloat16):
            loss, squared, kl = loss_of(vae, frames, weights, args.kl)
        loss.backward()
        optimiser.step(schedule.factor(step))
        step += 1
        if step % 200 == 0 or step == 1:
            log(step=step, loss=loss.item(), squared=squared.item(), kl=kl.item())
        if schedule.elapsed_minutes() > saved + SAVE_EVERY_MINUTES:
            saved = schedule.elapsed_minutes()
            save_state(vae, device, args)
    save_state(vae, device, args, log)
    vae.eval()
    for geometry in TRAIN_GEOMETRIES[:1] if args.max_steps else TRAIN_GEOMETRIES:
        psnr = reconstruction_psnr(vae, geometry, device)
        log(step=step, geometry=f"{geometry.width}x{geometry.height}x{geometry.frames}", psnr_db=psnr)


if __name__ == "__main__":
    main()
