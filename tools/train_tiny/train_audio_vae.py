"""Trains the audio VAE on freshly made soundtracks.

    python train_audio_vae.py --minutes 7
"""

import argparse

import torch

from audio import soundtrack
from audio_vae import AudioVae
from config import DEFAULT_GEOMETRY, TRAIN_GEOMETRIES
from scenes import sample_scenes
from training import Log, Optimiser, Schedule, add_arguments, load, save

KL_WEIGHT = 5e-4
STFT_SIZES = (256, 1024, 2048)


def spectra(waveform):
    for size in STFT_SIZES:
        window = torch.hann_window(size, device=waveform.device)
        yield torch.stft(waveform, size, size // 4, window=window, return_complex=True).abs() / size**0.5


def loss_of(vae, waveform):
    """Waveform [batch, samples] -> (loss, waveform error, mean KL)."""
    mean, log_std = vae.encode_moments(waveform)
    z = mean + torch.exp(log_std) * torch.randn_like(mean)
    decoded = vae.decode_unclamped(z)
    error = (decoded - waveform).abs().mean()
    spectral = 0
    for got, wanted in zip(spectra(decoded), spectra(waveform)):
        logarithmic = (torch.log(got + 0.02) - torch.log(wanted + 0.02)).abs().mean()
        spectral = spectral + (got - wanted).abs().mean() + 0.2 * logarithmic
    kl = 0.5 * (mean.square() + torch.exp(2 * log_std) - 1 - 2 * log_std).mean()
    return 10 * error + spectral + KL_WEIGHT * kl, error, kl


@torch.no_grad()
def reconstruction_snr(vae, geometry, device) -> float:
    """Signal-to-error ratio in dB over whole held-out soundtracks."""
    scenes = sample_scenes(32, torch.Generator().manual_seed(99), held_out=True)
    waveform = soundtrack(scenes.to(device), geometry).flatten(0, 1)
    decoded = vae.decode(vae.encode_moments(waveform)[0])
    ratio = waveform.square().sum() / (decoded - waveform).square().sum()
    return float(10 * ratio.log10())


@torch.no_grad()
def latent_statistics(vae, device, batches=16):
    """Per-channel mean and deviation of sampled latents over training clips."""
    generator, sums = torch.Generator().manual_seed(7), []
    for _ in range(batches):
        waveform = soundtrack(sample_scenes(16, generator).to(device), DEFAULT_GEOMETRY).flatten(0, 1)
        mean, log_std = vae.encode_moments(waveform)
        mean, variance = mean.flatten(0, 1).double(), (2 * log_std).exp().flatten(0, 1).double()
        sums.append(torch.stack([mean.mean(0), (mean.square() + variance).mean(0)]))
    first, second = torch.stack(sums).mean(0)
    return first.float(), (second - first.square()).sqrt().float()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    args = parser.parse_args()
    device, log = torch.device(args.device), Log(args.state / "audio_vae.log")
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    vae = AudioVae()
    if args.done_minutes:
        vae.load_state_dict(load(args.state, "audio_vae"), strict=False)
    vae.to(device)
    optimiser = Optimiser(vae, [], muon_lr=0, adam_lr=2e-3)
    generator = torch.Generator().manual_seed(args.seed + 1 + int(1000 * args.done_minutes))
    schedule = Schedule.of(args)
    batch = args.batch or 24
    step = 0
    while not schedule.finished() and not (args.max_steps and step >= args.max_steps):
        waveform = soundtrack(sample_scenes(batch, generator).to(device), DEFAULT_GEOMETRY).flatten(0, 1)
        loss, error, kl = loss_of(vae, waveform)
        loss.backward()
        optimiser.step(schedule.factor(step))
        step += 1
        if step % 200 == 0 or step == 1:
            log(step=step, loss=loss.item(), error=error.item(), kl=kl.item())
    for geometry in TRAIN_GEOMETRIES:
        snr = reconstruction_snr(vae, geometry, device)
        log(step=step, geometry=f"{geometry.width}x{geometry.height}x{geometry.frames}", snr_db=snr)
    mean, std = latent_statistics(vae, device, batches=1 if args.max_steps else 16)
    log(latents_std=[round(v, 3) for v in std.tolist()])
    save({**vae.state_dict(), "latents_mean": mean, "latents_std": std}, args.state, "audio_vae")


if __name__ == "__main__":
    main()
