"""Sigma grids, noise and the Euler loop, for single requests and for batches of captions."""

import torch

from config import AUDIO_SHIFT, VIDEO_SHIFT, Geometry
from dit import position_ids


def shifted(b, shift):
    return shift * b / (1 + (shift - 1) * b)


def sigma_grids(forwards: int):
    """(video, audio) sigmas, forwards + 1 points each, float32."""
    b = torch.linspace(1, 0, forwards + 1)
    return shifted(b, VIDEO_SHIFT), shifted(b, AUDIO_SHIFT)


def seeded_noise(seed: int, geometry: Geometry):
    """Noise of one request: video [T, h, w, 24], audio rows [2A, 32].

    Each comes from its own CPU generator with the same seed (the `sglang` recipe); the video draw
    is channel-major, [24, T, h, w].
    """
    shape = (24, geometry.latent_frames, geometry.latent_height, geometry.latent_width)
    video = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    audio = torch.randn(geometry.audio_rows, 32, generator=torch.Generator().manual_seed(seed))
    return video.permute(1, 2, 3, 0).contiguous(), audio


KEYFRAME_POSTERIOR_SEED = 42  # of the sampled posterior of visual conditions, whatever the request's seed


def seeded_keyframe_noise(seed: int, geometry: Geometry):
    """Of one request with a first frame: noise of the sampled posterior and of the condition, [1, h, w, 24].

    The second is the first latent frame of a draw as large as the clip's and one frame more (`sglang`).
    """
    h, w = geometry.latent_height, geometry.latent_width
    posterior = torch.randn(24, 1, h, w, generator=torch.Generator().manual_seed(KEYFRAME_POSTERIOR_SEED))
    shape = (24, geometry.latent_frames + 1, h, w)
    condition = torch.randn(shape, generator=torch.Generator().manual_seed(seed))[:, :1]
    return posterior.permute(1, 2, 3, 0).contiguous(), condition.permute(1, 2, 3, 0).contiguous()


class Conditioning:
    """Everything about captions and geometry that does not change during sampling."""

    def __init__(self, text_encoder, dit, ids, lengths, rope, keyframe=None, presented=None):
        """ids [batch, L], of which `lengths` [batch] are real; None: all of them.

        rope: cos, sin of every packed row, from `rope_of`; keyframe: rows of a first frame, where ids
        and lengths begin with what `presented` holds (keyframes.py).
        """
        self.keyframe, self.presented = keyframe, presented
        self.text_mask, self.mask = None, None
        if lengths is not None:
            real = torch.arange(ids.shape[1], device=ids.device)[None] < lengths[:, None]
            media_rows = rope[0].shape[2] - ids.shape[1]
            media = torch.ones(len(ids), media_rows, dtype=torch.bool, device=ids.device)
            self.text_mask = real[:, None, None]
            self.mask = torch.cat([real, media], dim=1)[:, None, None]
        self.text = dit.refine_text(text_encoder(ids, presented), self.text_mask)
        self.rope = rope


def rope_of(dit, lengths, padded: int, geometry: Geometry, keyframe: bool = False):
    """cos, sin [batch, 1, rows, frequencies] for captions of the given lengths."""
    return dit.rope(position_ids(lengths, padded, geometry, keyframe))


def velocity(dit, conditioning, video, audio, sigma_video, sigma_audio):
    """Velocities at one common pair of sigmas for the whole batch."""
    count = video.shape[0]
    t_video = (1 - sigma_video).to(video.device).expand(count)
    t_audio = (1 - sigma_audio).to(video.device).expand(count)
    return dit(
        video, audio, conditioning.text, t_video, t_audio, conditioning.rope, conditioning.mask,
        conditioning.keyframe, conditioning.presented,
    )  # fmt: skip


def euler(dit, conditioning, video, audio, sigmas_video, sigmas_audio):
    """Integrates rows from the first sigma of the grids to the last."""
    for i in range(len(sigmas_video) - 1):
        v_video, v_audio = velocity(dit, conditioning, video, audio, sigmas_video[i], sigmas_audio[i])
        video = video + (sigmas_video[i] - sigmas_video[i + 1]) * v_video
        audio = audio + (sigmas_audio[i] - sigmas_audio[i + 1]) * v_audio
    return video, audio
