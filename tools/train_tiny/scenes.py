"""What happens in a clip: attributes with names, and the motion they stand for.

Lengths are in picture heights, so x runs from 0 to the aspect ratio and y from 0 (top) to 1.
Everything is batched: a `Scenes` holds one tensor per attribute, first dimension = clip.
"""

import math
from dataclasses import dataclass, fields

import torch

SHAPES = ("circle", "square", "triangle", "star", "cross")
# Multiples of 40 Hz: one audio latent spans 1/40 s, so a steady tone has the same phase in each.
TONE_HZ = (240.0, 360.0, 520.0, 760.0, 1120.0)
COLOURS = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "white")
COLOUR_RGB = (
    (222, 44, 44), (244, 138, 34), (246, 220, 60), (52, 182, 74),
    (66, 212, 222), (52, 100, 236), (152, 64, 206), (240, 240, 240),
)  # fmt: skip
BACKGROUNDS = ("black", "dark blue", "dark green", "dark red", "brown", "gray")
BACKGROUND_RGB = ((12, 12, 14), (18, 24, 66), (14, 48, 30), (66, 18, 24), (70, 48, 30), (94, 96, 102))
SIZES = ("small", "medium", "large")
SIZE_RADIUS = (0.09, 0.13, 0.18)
MOTIONS = ("left", "right", "up", "down", "circling", "bouncing", "growing", "spinning")
SPEEDS = ("slow", "medium", "fast")

LINEAR_SPEED = (0.14, 0.24, 0.36)  # picture widths (or heights) per second
CIRCLING_HZ = (0.5, 0.8, 1.2)
CIRCLING_RADIUS = 0.24
BOUNCE_PERIOD_S = (0.84, 0.60, 0.44)
BOUNCE_HEIGHT = (0.42, 0.32, 0.22)
FLOOR_Y = 0.88
GROWTH_PER_S = (0.28, 0.46, 0.65)
GROWTH_START = 0.5
SPIN_HZ = (0.25, 0.5, 0.85)
# How far the lowest point of an upright shape lies below its centre, in radii.
BOTTOM_EXTENT = (1.0, 0.88, 0.725, 1.173, 1.15)
SECOND_SHAPE_RADIUS = 0.07
HOLD_OUT_MODULUS = 8

_CIRCLE, _SPINNING = SHAPES.index("circle"), MOTIONS.index("spinning")


@dataclass
class Scenes:
    """A batch of clips. Integer fields index the tuples above."""

    shape: torch.Tensor
    colour: torch.Tensor
    size: torch.Tensor
    motion: torch.Tensor
    speed: torch.Tensor
    background: torch.Tensor
    background_bottom: torch.Tensor  # equal to `background` when the background is plain
    has_second: torch.Tensor  # a small second shape rests in an upper corner
    second_shape: torch.Tensor
    second_colour: torch.Tensor
    second_right: torch.Tensor
    offset_x: torch.Tensor  # uniform in [-1, 1]: free choice of place along x
    offset_y: torch.Tensor
    phase: torch.Tensor  # uniform in [0, 1): start of a periodic motion
    drift: torch.Tensor  # sideways drift of a bouncing shape, widths per second
    tint: torch.Tensor  # [n, 3, 3] colour jitter of shape, background top and bottom

    def __len__(self) -> int:
        return self.shape.shape[0]

    def to(self, device) -> "Scenes":
        return Scenes(**{f.name: getattr(self, f.name).to(device) for f in fields(self)})

    def __getitem__(self, index) -> "Scenes":
        return Scenes(**{f.name: getattr(self, f.name)[index] for f in fields(self)})


def is_held_out(shape, colour, motion):
    """One combination of shape, colour and motion in eight never occurs in training.

    For every shape and motion exactly one colour is held out, and every colour equally often.
    """
    return (5 * shape + colour + 3 * motion) % HOLD_OUT_MODULUS == 0


def sample_scenes(
    count: int, generator: torch.Generator, held_out: bool = False, hard_share: float = 0.0
) -> Scenes:
    """Draws `count` scenes, all from the training combinations or all from the held-out ones.

    About `hard_share` of them spin and as many more are small: what a picture VAE blurs first.
    """

    def integers(high, n=count):
        return torch.randint(high, (n,), generator=generator)

    def uniform(*shape):
        return torch.rand(shape, generator=generator)

    candidates = 40 * count
    shape, colour = integers(len(SHAPES), candidates), integers(len(COLOURS), candidates)
    motion = integers(len(MOTIONS), candidates)
    if hard_share:
        motion = torch.where(uniform(candidates) < hard_share, _SPINNING, motion)
    visible = ~((shape == _CIRCLE) & (motion == _SPINNING))  # a spinning disc looks still
    keep = visible & (is_held_out(shape, colour, motion) == held_out)
    chosen = keep.nonzero().squeeze(1)[:count]
    shape, colour, motion = shape[chosen], colour[chosen], motion[chosen]

    background = integers(len(BACKGROUNDS))
    gradient = uniform(count) < 0.35
    other = (background + 1 + integers(len(BACKGROUNDS) - 1)) % len(BACKGROUNDS)
    size = integers(len(SIZES))
    if hard_share:
        size = torch.where(uniform(count) < hard_share, 0, size)
    return Scenes(
        shape=shape,
        colour=colour,
        size=size,
        motion=motion,
        speed=integers(len(SPEEDS)),
        background=background,
        background_bottom=torch.where(gradient, other, background),
        has_second=uniform(count) < 0.1,
        second_shape=(shape + 1 + integers(len(SHAPES) - 1)) % len(SHAPES),
        second_colour=(colour + 1 + integers(len(COLOURS) - 1)) % len(COLOURS),
        second_right=integers(2).bool(),
        offset_x=2 * uniform(count) - 1,
        offset_y=2 * uniform(count) - 1,
        phase=uniform(count),
        drift=0.1 * (2 * uniform(count) - 1),
        tint=torch.randn(count, 3, 3, generator=generator).clamp(-2, 2) * (3 / 255),
    )


def _per_clip(values, index):
    return torch.tensor(values, dtype=torch.float32, device=index.device)[index][:, None]


@dataclass
class Track:
    """Place of the main shape at each time, all [clips, times]; angle in radians, clockwise."""

    x: torch.Tensor
    y: torch.Tensor
    radius: torch.Tensor
    angle: torch.Tensor


def track(scenes: Scenes, times_s: torch.Tensor, aspect: float, duration_s: float) -> Track:
    """The main shape's path at `times_s` [times]."""
    t = times_s[None, :].float()
    motion = scenes.motion[:, None]
    offset_x, offset_y = scenes.offset_x[:, None], scenes.offset_y[:, None]
    base_radius = _per_clip(SIZE_RADIUS, scenes.size)
    turn = 2 * math.pi

    def is_motion(name):
        return motion == MOTIONS.index(name)

    speed = _per_clip(LINEAR_SPEED, scenes.speed)
    # The path is centred with what freedom its length leaves inside the middle 70 %.
    freedom = ((0.7 - speed * duration_s) / 2).clamp(min=0)
    travel = speed * (t - duration_s / 2)
    sign = is_motion("right").float() + is_motion("down").float() - is_motion("left").float()
    sign = sign - is_motion("up").float()
    horizontal = is_motion("left") | is_motion("right")
    vertical = is_motion("up") | is_motion("down")
    x = torch.where(horizontal, 0.5 + freedom * offset_x + sign * travel, 0.5 + 0.15 * offset_x)
    y = torch.where(vertical, 0.5 + freedom * offset_y + sign * travel, 0.5 + 0.08 * offset_y)
    x = torch.where(vertical, 0.5 + 0.25 * offset_x, x).expand(-1, t.shape[1]) * aspect
    y = torch.where(horizontal, 0.5 + 0.15 * offset_y, y).expand(-1, t.shape[1])

    circling_angle = turn * (scenes.phase[:, None] + _per_clip(CIRCLING_HZ, scenes.speed) * t)
    x = torch.where(is_motion("circling"), aspect / 2 + CIRCLING_RADIUS * circling_angle.cos(), x)
    y = torch.where(is_motion("circling"), 0.5 + CIRCLING_RADIUS * circling_angle.sin(), y)

    period = _per_clip(BOUNCE_PERIOD_S, scenes.speed)
    arc = torch.remainder(t / period - scenes.phase[:, None], 1)
    rest_y = FLOOR_Y - base_radius * _per_clip(BOTTOM_EXTENT, scenes.shape)
    bounce_y = rest_y - _per_clip(BOUNCE_HEIGHT, scenes.speed) * 4 * arc * (1 - arc)
    bounce_x = aspect * (0.5 + 0.2 * offset_x + scenes.drift[:, None] * (t - duration_s / 2))
    x = torch.where(is_motion("bouncing"), bounce_x, x)
    y = torch.where(is_motion("bouncing"), bounce_y, y)

    growth = GROWTH_START + _per_clip(GROWTH_PER_S, scenes.speed) * t
    radius = base_radius * torch.where(is_motion("growing"), growth, torch.ones_like(t))
    spin = turn * (scenes.phase[:, None] + _per_clip(SPIN_HZ, scenes.speed) * t)
    angle = torch.where(is_motion("spinning"), spin, torch.zeros_like(t))
    return Track(x, y, radius, angle)


def bounce_times(scenes: Scenes, index: int, duration_s: float) -> list:
    """Times at which a bouncing clip touches the floor; empty for every other motion."""
    if MOTIONS[scenes.motion[index]] != "bouncing":
        return []
    period = BOUNCE_PERIOD_S[scenes.speed[index]]
    first = float(scenes.phase[index]) * period
    return [first + k * period for k in range(int((duration_s - first) / period) + 1)]
