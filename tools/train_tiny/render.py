"""Draws scenes as anti-aliased frames from signed distances, on any torch device."""

import math

import torch

from config import FRAMES_PER_SECOND, Geometry
from scenes import (
    BACKGROUND_RGB,
    COLOUR_RGB,
    FLOOR_Y,
    MOTIONS,
    SECOND_SHAPE_RADIUS,
    Scenes,
    track,
)

SQUARE_HALF_SIDE = 0.88
TRIANGLE_CIRCUMRADIUS = 1.45
STAR_OUTER, STAR_INNER = 1.45, 0.65
CROSS_ARM, CROSS_HALF_WIDTH = 1.15, 0.41


def signed_distance(shape, x, y):
    """Distance outside (positive) or inside a shape of radius 1; x, y already centred and turned.

    Exact on the edges, which is all that anti-aliasing needs. `shape` broadcasts against x and y.
    """
    ax, ay = x.abs(), y.abs()
    circle = torch.sqrt(x * x + y * y + 1e-12) - 1
    square = torch.maximum(ax, ay) - SQUARE_HALF_SIDE
    # Upright triangle: the base plane and the two slanted planes (y points down).
    slanted = ax * math.cos(math.pi / 6) - y * 0.5
    triangle = torch.maximum(y, slanted) - TRIANGLE_CIRCUMRADIUS / 2
    # Star: fold the plane onto half a point, then one edge is left.
    sector = 2 * math.pi / 5
    angle = torch.remainder(torch.atan2(x, -y) + sector / 2, sector) - sector / 2
    distance = torch.sqrt(x * x + y * y + 1e-12)
    folded_x, folded_y = distance * angle.cos(), distance * angle.sin().abs()
    inner_x, inner_y = STAR_INNER * math.cos(sector / 2), STAR_INNER * math.sin(sector / 2)
    edge_x, edge_y = STAR_OUTER - inner_x, inner_y
    length = math.hypot(edge_x, edge_y)
    star = ((folded_x - STAR_OUTER) * edge_y + folded_y * edge_x) / length
    cross = torch.minimum(
        torch.maximum(ax - CROSS_ARM, ay - CROSS_HALF_WIDTH),
        torch.maximum(ax - CROSS_HALF_WIDTH, ay - CROSS_ARM),
    )
    result = circle
    for index, candidate in enumerate((square, triangle, star, cross), start=1):
        result = torch.where(shape == index, candidate, result)
    return result


def coverage(shape, center_x, center_y, radius, angle, geometry: Geometry):
    """Share of each pixel covered by the shape: [..., height, width]."""
    device = center_x.device
    pixel = 1 / geometry.height
    xs = (torch.arange(geometry.width, device=device) + 0.5) * pixel
    ys = (torch.arange(geometry.height, device=device) + 0.5) * pixel
    dx = (xs[None, :] - center_x[..., None, None]) / radius[..., None, None]
    dy = (ys[:, None] - center_y[..., None, None]) / radius[..., None, None]
    cos, sin = angle.cos()[..., None, None], angle.sin()[..., None, None]
    distance = signed_distance(shape[..., None, None], dx * cos + dy * sin, dy * cos - dx * sin)
    return (0.5 - distance * radius[..., None, None] / pixel).clamp(0, 1)


def _rgb(table, index):
    return torch.tensor(table, dtype=torch.float32, device=index.device)[index] / 255


def render(scenes: Scenes, geometry: Geometry, first: int = 0, frames: int = 0) -> torch.Tensor:
    """[clips, frames, height, width, 3] in [0, 1]: the whole clip, or `frames` from `first` on."""
    return render_with_coverage(scenes, geometry, first, frames)[0]


def render_with_coverage(scenes: Scenes, geometry: Geometry, first: int = 0, frames: int = 0):
    """render(), and the main shape's share of each pixel, [clips, frames, height, width]."""
    device = scenes.shape.device
    count, frames = len(scenes), frames or geometry.frames
    times = (first + torch.arange(frames, device=device)) / FRAMES_PER_SECOND
    path = track(scenes, times, geometry.aspect, geometry.duration_s)

    top = _rgb(BACKGROUND_RGB, scenes.background) + scenes.tint[:, 1]
    same = (scenes.background == scenes.background_bottom)[:, None]
    bottom = torch.where(
        same, top, _rgb(BACKGROUND_RGB, scenes.background_bottom) + scenes.tint[:, 2]
    )
    ys = (torch.arange(geometry.height, device=device) + 0.5) / geometry.height
    background = top[:, None] + (bottom - top)[:, None] * ys[None, :, None]  # [clips, height, 3]
    floor = (scenes.motion == MOTIONS.index("bouncing"))[:, None, None] & (ys > FLOOR_Y)[None, :, None]
    background = torch.where(floor, background * 0.8 + 0.13, background)

    rest = torch.full((count,), SECOND_SHAPE_RADIUS, device=device)
    second_x = torch.where(scenes.second_right, 0.9, 0.1) * geometry.aspect
    second = coverage(
        scenes.second_shape, second_x, torch.full_like(second_x, 0.15), rest, torch.zeros_like(rest), geometry
    )
    second = second * scenes.has_second[:, None, None]
    still = background[:, :, None, :].expand(-1, -1, geometry.width, -1)
    still = torch.lerp(still, _rgb(COLOUR_RGB, scenes.second_colour)[:, None, None], second[..., None])

    shape = scenes.shape[:, None].expand(-1, frames)
    alpha = coverage(shape, path.x, path.y, path.radius, path.angle, geometry)
    colour = _rgb(COLOUR_RGB, scenes.colour) + scenes.tint[:, 0]
    picture = torch.lerp(still[:, None], colour[:, None, None, None], alpha[..., None])
    return picture.clamp(0, 1), alpha
