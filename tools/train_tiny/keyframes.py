"""A first frame as a condition: what the text encoder and the transformer are told of it.

The vision tower of h3-tiny gives every token of a picture the same learned features (see README.md), so
the presentation needs the picture's size only; what is on it reaches the clip as latents.
"""

import math
from dataclasses import dataclass

import torch

from config import Geometry
from dit import CONDITION_TIME, patchify
from tokenizer import token_id

LABEL = "<Picture 1>: "
TOKEN_PIXELS = 32  # edge of what becomes one token
MIN_PIXELS = 65536  # smaller pictures are enlarged for the vision tower


@dataclass(frozen=True)
class Presented:
    """The rows in front of a caption: label, vision_start, one pad for each token of the picture, vision_end."""

    ids: tuple
    label_rows: int
    grid: tuple  # tokens (down, across)

    @property
    def visual_rows(self) -> int:
        return self.grid[0] * self.grid[1] + 2

    @property
    def rows(self) -> int:
        return self.label_rows + self.visual_rows

    @property
    def pads(self) -> slice:
        return slice(self.label_rows + 1, self.rows - 1)

    def text_positions(self, rows: int, device):
        """[rows, 3] (time, height, width) of the text encoder's rotary embedding, caption included.

        Text moves a cursor on by one a row; the picture lies at the cursor and moves it by its longer side.
        """
        before = torch.arange(self.label_rows + 1)[:, None].expand(-1, 3)
        cursor, (down, across) = self.label_rows + 1, self.grid
        y, x = torch.meshgrid(torch.arange(down), torch.arange(across), indexing="ij")
        picture = cursor + torch.stack([torch.zeros_like(y), y, x], dim=-1).reshape(-1, 3)
        after = cursor + max(self.grid) + torch.arange(rows - self.rows + 1)[:, None].expand(-1, 3)
        return torch.cat([before, picture, after]).to(device)


def token_grid(width: int, height: int) -> tuple:
    """Tokens (down, across) of a picture whose sides are multiples of 32, after the enlargement."""
    scale = max(1.0, math.sqrt(MIN_PIXELS / (width * height)))
    sides = (height, width)
    if scale == 1.0:
        return tuple(side // TOKEN_PIXELS for side in sides)
    return tuple(math.ceil(side * scale / TOKEN_PIXELS) for side in sides)


def present(tokenizer, geometry: Geometry) -> Presented:
    label = tokenizer.encode(LABEL).ids
    grid = token_grid(geometry.width, geometry.height)
    pads = [token_id("<|image_pad|>")] * (grid[0] * grid[1])
    ids = [*label, token_id("<|vision_start|>"), *pads, token_id("<|vision_end|>")]
    return Presented(tuple(ids), len(label), grid)


def with_picture(presented: Presented | None, ids, lengths):
    """Captions [batch, L] and their lengths -> the same behind a picture; None leaves them alone."""
    if presented is None:
        return ids, lengths
    prefix = torch.tensor(presented.ids, device=ids.device, dtype=ids.dtype).expand(len(ids), -1)
    return torch.cat([prefix, ids], dim=1), None if lengths is None else lengths + presented.rows


def with_condition_noise(clean, noise):
    """What the transformer gets of a visual condition: a thousandth of it is noise."""
    return CONDITION_TIME * clean + (1 - CONDITION_TIME) * noise


def random_keyframe(mean, std):
    """Rows of a keyframe for training: a sampled posterior, noised; all in units of normalised latents."""
    return with_condition_noise(mean + std * torch.randn_like(mean), torch.randn_like(mean))


@torch.no_grad()
def picture_moments(autoencoders, pictures):
    """Pictures [batch, H, W, 3] in [0, 1] -> normalised rows (mean, std), [batch, rows, 96] each."""
    vae = autoencoders.video
    mean, log_variance = vae.encode_picture_moments(pictures)
    mean = (mean - vae.latents_mean) / vae.latents_std
    std = torch.exp(0.5 * log_variance) / vae.latents_std
    return patchify(mean), patchify(std)


@torch.no_grad()
def request_keyframe(autoencoders, pictures, posterior_noise, condition_noise):
    """Rows of a request's keyframe. Noise [batch, 1, h, w, 24] as `sampler.seeded_keyframe_noise` draws it; the
    sampled posterior is rounded to float16, as the reference does."""
    vae = autoencoders.video
    mean, log_variance = vae.encode_picture_moments(pictures)
    sampled = (mean + torch.exp(0.5 * log_variance) * posterior_noise).half().float()
    clean = (sampled - vae.latents_mean) / vae.latents_std
    return with_condition_noise(patchify(clean), patchify(condition_noise))
