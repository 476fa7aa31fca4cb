"""The soundtrack of a scene: a tone per shape, panned with the shape, a beep at each bounce."""

import math

import torch

from config import SAMPLE_RATE_HZ, SAMPLES_PER_LATENT, Geometry
from scenes import BOUNCE_PERIOD_S, MOTIONS, SPIN_HZ, TONE_HZ, Scenes, track

AMPLITUDE = 0.35
BEEP_ATTACK_S, BEEP_DECAY_S = 0.002, 0.05
FADE_S = 0.01


def soundtrack(scenes: Scenes, geometry: Geometry) -> torch.Tensor:
    """[clips, 2 (left, right), samples] at 32 kHz, as long as the geometry's audio latents."""
    device = scenes.shape.device
    samples = geometry.audio_latents * SAMPLES_PER_LATENT
    t = torch.arange(samples, device=device) / SAMPLE_RATE_HZ
    path = track(scenes, t, geometry.aspect, geometry.duration_s)

    def table(values, index):
        return torch.tensor(values, dtype=torch.float32, device=device)[index][:, None]

    # All phases start at 0 and beeps only gate the running tone, so the phase inside a latent
    # depends on the pitch alone (see TONE_HZ). Reduced mod 1 first: float32 sine of large angles.
    cycles = torch.remainder(table(TONE_HZ, scenes.shape) * t[None, :], 1)
    tone = torch.sin(2 * math.pi * cycles)

    motion = scenes.motion[:, None]
    envelope = (t / FADE_S).clamp(max=1)[None, :].expand(len(scenes), -1)
    growing = 0.3 + 0.7 * (t / geometry.duration_s).clamp(max=1)
    envelope = torch.where(motion == MOTIONS.index("growing"), envelope * growing, envelope)
    tremolo = 0.7 + 0.3 * torch.cos(4 * math.pi * table(SPIN_HZ, scenes.speed) * t)
    envelope = torch.where(motion == MOTIONS.index("spinning"), envelope * tremolo, envelope)

    period = table(BOUNCE_PERIOD_S, scenes.speed)
    since_bounce = torch.remainder(t / period - scenes.phase[:, None], 1) * period
    heard = t[None, :] >= scenes.phase[:, None] * period  # no echo of a bounce before the clip
    beep = (1 - torch.exp(-since_bounce / BEEP_ATTACK_S)) * torch.exp(-since_bounce / BEEP_DECAY_S)
    envelope = torch.where(motion == MOTIONS.index("bouncing"), beep * heard, envelope)

    pan = (path.x / geometry.aspect).clamp(0, 1) * (math.pi / 2)  # equal power
    mono = AMPLITUDE * envelope * tone
    return torch.stack([mono * pan.cos(), mono * pan.sin()], dim=1)
