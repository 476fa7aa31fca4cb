"""Trains the video decoder on, with the encoder and therefore all latents frozen.

Clips are encoded once and kept as bytes, which makes a step twenty times cheaper than one of
`train_video_vae.py`.

    python train_video_decoder.py --minutes 4
"""

import argparse
import time

import torch

from config import CLIP_FRAMES, CLIP_LATENTS, TRAIN_GEOMETRIES, WINDOW_LATENTS
from render import render_with_coverage
from scenes import sample_scenes
from train_video_vae import WINDOW_FRAMES, pixel_weights, reconstruction_psnr
from training import SAVE_EVERY_MINUTES, Log, Optimiser, Schedule, add_arguments, load, save
from video_vae import HEAD, TAIL, VideoVae

FILL_MINUTES, FILL_CHUNK = 0.75, 32
BATCHES = (64, 40)  # windows a step for the two canvas sizes
LATENT_NOISE = 0.12  # up to this share of a channel's deviation, as generated latents are not exact


class WindowStore:
    """Frames (bytes) and latent means of clips of one geometry."""

    def __init__(self, geometry, device):
        self.geometry, self.device = geometry, device
        self.frames, self.latents, self.shapes = [], [], []

    @torch.no_grad()
    def add(self, vae, count, generator, hard_share):
        scenes = sample_scenes(count, generator, hard_share=hard_share).to(self.device)
        frames, alpha = render_with_coverage(scenes, self.geometry)
        with torch.autocast(self.device.type, torch.bfloat16):
            mean, _ = vae.encode_moments(frames)
        self.frames.append((frames * 255).round().byte())
        self.latents.append(mean)
        self.shapes.append(alpha > 0)

    def close(self):
        self.frames, self.latents, self.shapes = map(torch.cat, (self.frames, self.latents, self.shapes))

    def batch(self, count):
        """(latents [count, 7, ...], frames [count, 22, ...] in [0, 1], whether a pixel has a part of the
        shape [count, 22, H, W]) of random windows."""
        index = torch.randint(len(self.frames), (count,), device=self.device)
        window = int(torch.randint((self.geometry.frames - 5) // CLIP_FRAMES, (1,)))
        latents = self.latents[index, CLIP_LATENTS * window : CLIP_LATENTS * window + WINDOW_LATENTS]
        span = slice(CLIP_FRAMES * window, CLIP_FRAMES * window + WINDOW_FRAMES)
        return latents, self.frames[index, span].float() / 255, self.shapes[index, span]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--hard-share", type=float, default=0.0, help="see sample_scenes")
    parser.add_argument("--shape-weight", type=float, default=0.0, help="extra loss on the shape's pixels")
    args = parser.parse_args()
    device, log = torch.device(args.device), Log(args.state / "video_decoder.log")
    schedule = Schedule.of(args)
    torch.manual_seed(args.seed + 3 + int(1000 * args.done_minutes))
    torch.backends.cudnn.benchmark = True
    state = load(args.state, "video_vae")
    statistics = {key: state.pop(key) for key in ("latents_mean", "latents_std")}
    vae = VideoVae()
    vae.load_state_dict(state)
    vae.to(device)
    vae.encoder.requires_grad_(False)
    vae.quant_conv.requires_grad_(False)
    noise_scale = LATENT_NOISE * statistics["latents_std"].to(device)

    generator = torch.Generator().manual_seed(args.seed + 3 + int(1000 * args.done_minutes))
    stores = [WindowStore(geometry, device) for geometry in TRAIN_GEOMETRIES[:2]]
    chunk = args.batch or FILL_CHUNK
    start = time.monotonic()
    while schedule.elapsed_minutes() < FILL_MINUTES and not (args.max_steps and stores[0].frames):
        for store in stores:
            store.add(vae, chunk, generator, args.hard_share)
        if device.type == "cuda":
            torch.cuda.synchronize()
    for store in stores:
        store.close()
    log(clips=[len(store.frames) for store in stores], fill_s=time.monotonic() - start)

    matrices = [p for p in vae.decoder.transformer_blocks.parameters() if p.ndim == 2]
    optimiser = Optimiser(vae, matrices, muon_lr=2e-3, adam_lr=1e-3)

    def save_state():
        save({**vae.state_dict(), **statistics}, args.state, "video_vae")

    step, saved = 0, 0.0
    while not schedule.finished() and not (args.max_steps and step >= args.max_steps):
        which = int(step % 3 == 2)
        latents, frames, shapes = stores[which].batch(args.batch or BATCHES[which])
        level = torch.rand(len(latents), 1, 1, 1, 1, device=device)
        latents = latents + level * noise_scale * torch.randn_like(latents)
        with torch.autocast(device.type, torch.bfloat16):
            decoded = vae.decode_window(latents).float()
        error = torch.cat([decoded[:, HEAD], decoded[:, TAIL]], dim=1) - vae.normalise_pixels(frames)
        squared = error.square()
        (pixel_weights(shapes, args.shape_weight) * (error.abs() + squared)).mean().backward()
        optimiser.step(schedule.factor(step))
        step += 1
        if step % 1000 == 0 or step in (1, 100):
            log(step=step, squared=squared.mean().item())
        if schedule.elapsed_minutes() > saved + SAVE_EVERY_MINUTES:
            saved = schedule.elapsed_minutes()
            save_state()
    save_state()
    for geometry in TRAIN_GEOMETRIES[:1] if args.max_steps else TRAIN_GEOMETRIES:
        psnr = reconstruction_psnr(vae, geometry, device)
        log(step=step, geometry=f"{geometry.width}x{geometry.height}x{geometry.frames}", psnr_db=psnr)


if __name__ == "__main__":
    main()
