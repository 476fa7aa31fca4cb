"""Measures a decoded clip without any network: what is seen, how it moves, what is heard.

Every measurement that cannot be made is None rather than a guess. Lengths are in picture heights.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy import ndimage

from config import FRAMES_PER_SECOND, SAMPLE_RATE_HZ
from render import (
    CROSS_ARM,
    CROSS_HALF_WIDTH,
    SQUARE_HALF_SIDE,
    STAR_INNER,
    STAR_OUTER,
    TRIANGLE_CIRCUMRADIUS,
    signed_distance,
)
from scenes import (
    BOUNCE_PERIOD_S,
    CIRCLING_HZ,
    COLOUR_RGB,
    COLOURS,
    GROWTH_PER_S,
    GROWTH_START,
    LINEAR_SPEED,
    SHAPES,
    SPEEDS,
    SPIN_HZ,
    TONE_HZ,
)

FOREGROUND_CONTRAST = 0.16  # largest channel difference from the background of the row
SMALLEST_AREA = 0.002  # of a squared picture height
CORE_QUANTILE = 0.7  # of the differences inside a shape: its fully covered pixels
BORDER_SHARE = 1 / 12  # columns at each side that show background
UNIT_AREA = (
    math.pi,
    (2 * SQUARE_HALF_SIDE) ** 2,
    3 * math.sqrt(3) / 4 * TRIANGLE_CIRCUMRADIUS**2,
    5 * STAR_OUTER * STAR_INNER * math.sin(math.pi / 5),
    4 * (2 * CROSS_ARM * CROSS_HALF_WIDTH - CROSS_HALF_WIDTH**2),
)
SYMMETRY = (math.inf, math.pi / 2, 2 * math.pi / 3, 2 * math.pi / 5, math.pi / 2)  # turn onto itself
SHAPE_MIN_OVERLAP = 0.6
COLOUR_MAX_DISTANCE = 0.35
IMPACT_KINK = 0.06  # second difference of height at a bounce; a fast circle reaches 0.024
IMPACT_MIN_GAP_S = 0.1
CIRCLING_MIN_TURNS, CIRCLING_MIN_EXTENT = 0.6, 0.25
GROWING_MIN_RATIO = 1.35
MOVING_MIN_EXTENT = 0.12
SPINNING_MIN_TURN = math.radians(40)
PITCH_TOLERANCE = 1.06
SILENCE_RMS = 0.004
BEEP_ON, BEEP_OFF, BEEP_QUIET_S = 0.3, 0.15, 0.04


@dataclass
class Verdict:
    colour: str | None = None
    shape: str | None = None
    shape_overlap: float = 0.0
    motion: str | None = None
    speed: str | None = None
    bounces_s: list = field(default_factory=list)
    pitch_hz: float | None = None
    pitch_shape: str | None = None
    beeps_s: list = field(default_factory=list)
    pan_correlation: float | None = None
    seen_share: float = 0.0  # frames in which a shape was found

    def bounce_offsets_ms(self) -> list:
        """For each bounce seen, the distance to the nearest beep heard (infinite without beeps)."""
        return [
            min((abs(beep - bounce) * 1000 for beep in self.beeps_s), default=math.inf)
            for bounce in self.bounces_s
        ]


def opacities(frames):
    """How much of each pixel the main shape covers, [frames, height, width] in [0, 1].

    The main shape is the largest foreground piece of any frame; from there it is followed both
    ways as the nearest piece, so that a second shape at rest is not mistaken for it. Opacity is
    the difference from the background in units of the shape's own, so blurred edges count half.
    """
    height = frames.shape[1]
    border = max(2, round(frames.shape[2] * BORDER_SHARE))
    sides = np.concatenate([frames[:, :, :border], frames[:, :, -border:]], axis=2)
    background = np.median(sides.transpose(1, 0, 2, 3).reshape(height, -1, 3), axis=1)
    difference = np.abs(frames - background[None, :, None]).max(-1)
    pieces = []  # of each frame: list of (area, centre, mask)
    for picture in difference > FOREGROUND_CONTRAST:
        labels, count = ndimage.label(picture)
        sizes = np.bincount(labels.ravel())
        kept = [i for i in range(1, count + 1) if sizes[i] > SMALLEST_AREA * height**2]
        centers = ndimage.center_of_mass(picture, labels, kept)
        pieces.append([(sizes[i], np.array(c), labels == i) for i, c in zip(kept, centers)])
    result = np.zeros_like(difference)
    largest = [max((piece[0] for piece in frame), default=0) for frame in pieces]
    if not max(largest):
        return result
    first = int(np.argmax(largest))
    for direction in (range(first, len(pieces)), range(first, -1, -1)):
        center = max(pieces[first], key=lambda piece: piece[0])[1]
        for index in direction:
            if pieces[index]:
                _, center, mask = min(pieces[index], key=lambda piece: np.linalg.norm(piece[1] - center))
                core = np.quantile(difference[index][mask], CORE_QUANTILE)
                near = ndimage.binary_dilation(mask, iterations=2)
                result[index] = near * (difference[index] / core).clip(0, 1)
    return result


def overlap(opacity, shape, center, radius, angles):
    """Intersection over union with a drawn shape at each angle; center and radius in pixels."""
    reach = int(1.7 * radius) + 2
    top, left = max(0, int(center[1]) - reach), max(0, int(center[0]) - reach)
    crop = torch.from_numpy(opacity[top : int(center[1]) + reach, left : int(center[0]) + reach])
    ys = (torch.arange(crop.shape[0]) + top + 0.5 - center[1]) / radius
    xs = (torch.arange(crop.shape[1]) + left + 0.5 - center[0]) / radius
    angles = torch.as_tensor(angles, dtype=torch.float32)[:, None, None]
    x = xs[None, None] * angles.cos() + ys[None, :, None] * angles.sin()
    y = ys[None, :, None] * angles.cos() - xs[None, None] * angles.sin()
    drawn = (0.5 - signed_distance(torch.tensor(shape), x, y) * radius).clamp(0, 1)
    return torch.minimum(drawn, crop).sum((1, 2)) / torch.maximum(drawn, crop).sum((1, 2)).clamp(min=1)


def _angles(shape, count):
    period = SYMMETRY[shape]
    return [0.0] if math.isinf(period) else [period * k / count for k in range(count)]


def measure_shape(opacity, x, y, area, usable):
    """(index of the best fitting shape, its mean overlap) over up to eight frames."""
    chosen = usable[np.linspace(0, len(usable) - 1, min(8, len(usable))).round().astype(int)]
    scores = []
    for shape in range(len(SHAPES)):
        best = [
            overlap(opacity[f], shape, (x[f], y[f]), math.sqrt(area[f] / UNIT_AREA[shape]), _angles(shape, 8)).max()
            for f in chosen
        ]
        scores.append(float(sum(best) / len(best)))
    return int(np.argmax(scores)), max(scores)


def measure_turn(opacity, x, y, area, usable, shape):
    """Total turn in radians of the best fitting angle over the usable frames."""
    if math.isinf(SYMMETRY[shape]):
        return 0.0
    angles, fitted = _angles(shape, 18), []
    for f in usable:
        radius = math.sqrt(area[f] / UNIT_AREA[shape])
        fitted.append(angles[int(overlap(opacity[f], shape, (x[f], y[f]), radius, angles).argmax())])
    return float(np.ptp(np.unwrap(fitted, period=SYMMETRY[shape])))


def impacts(times, y):
    """Times at which a falling track turns around sharply, to a fraction of a frame."""
    found = []
    for i in range(1, len(y) - 1):
        before, after = y[i] - y[i - 1], y[i + 1] - y[i]
        if before > -0.01 and after < 0.01 and before - after > IMPACT_KINK and y[i] >= max(y[i - 1], y[i + 1]):
            # Both flanks are straight here: where they meet is half their imbalance away.
            slope = max(before, -after)
            time = float(times[i] + (y[i + 1] - y[i - 1]) / (2 * slope) * (times[i + 1] - times[i]))
            if not found or time - found[-1] > IMPACT_MIN_GAP_S:
                found.append(time)
    return found


def nearest(value, table):
    """Name of the speed whose table entry is nearest in ratio."""
    return SPEEDS[int(np.argmin([abs(math.log(max(value, 1e-6) / entry)) for entry in table]))]


def measure_motion(verdict, times, x, y, radius, aspect, turn_of):
    """Fills motion, speed and bounces from the track (all in picture heights)."""
    duration = times[-1] - times[0]
    start, end = slice(0, 3), slice(-3, None)
    center_x, center_y = (x.max() + x.min()) / 2, (y.max() + y.min()) / 2
    turns = np.ptp(np.unwrap(np.arctan2(y - center_y, x - center_x))) / (2 * math.pi)
    growth = radius[end].mean() / radius[start].mean()
    extent_x, extent_y = np.ptp(x), np.ptp(y)
    bounces = impacts(times, y)
    if bounces:
        verdict.motion, verdict.bounces_s = "bouncing", bounces
        if len(bounces) > 1:
            verdict.speed = nearest(np.diff(bounces).mean(), BOUNCE_PERIOD_S)
    elif turns > CIRCLING_MIN_TURNS and min(extent_x, extent_y) > CIRCLING_MIN_EXTENT:
        verdict.motion, verdict.speed = "circling", nearest(turns / duration, CIRCLING_HZ)
    elif growth > GROWING_MIN_RATIO:
        verdict.motion = "growing"
        expected = [1 + rate * duration / GROWTH_START for rate in GROWTH_PER_S]
        verdict.speed = nearest(growth - 1, [ratio - 1 for ratio in expected])
    elif max(extent_x, extent_y) > MOVING_MIN_EXTENT:
        dx, dy = x[end].mean() - x[start].mean(), y[end].mean() - y[start].mean()
        if abs(dx) > abs(dy):
            verdict.motion = "right" if dx > 0 else "left"
            verdict.speed = nearest(extent_x / aspect / duration, LINEAR_SPEED)
        else:
            verdict.motion = "down" if dy > 0 else "up"
            verdict.speed = nearest(extent_y / duration, LINEAR_SPEED)
    else:
        turn = turn_of()
        verdict.motion = "spinning" if turn > SPINNING_MIN_TURN else "still"
        if verdict.motion == "spinning":
            verdict.speed = nearest(turn / (2 * math.pi) / duration, SPIN_HZ)


def measure_pitch(verdict, sound):
    mono = sound.sum(0)
    if np.sqrt(np.mean(mono**2)) < SILENCE_RMS:
        return
    spectrum = np.abs(np.fft.rfft(mono * np.hanning(len(mono))))
    frequencies = np.fft.rfftfreq(len(mono), 1 / SAMPLE_RATE_HZ)
    spectrum[(frequencies < 120) | (frequencies > 1800)] = 0
    verdict.pitch_hz = float(frequencies[spectrum.argmax()])
    ratios = [max(verdict.pitch_hz / tone, tone / verdict.pitch_hz) for tone in TONE_HZ]
    if min(ratios) < PITCH_TOLERANCE:
        verdict.pitch_shape = SHAPES[int(np.argmin(ratios))]


def measure_beeps(sound):
    """Onset times of beeps: the level rises above 30 % of its peak after 40 ms below 15 %."""
    hop = SAMPLE_RATE_HZ // 250
    power = (sound**2).sum(0)
    level = np.sqrt(power[: len(power) // hop * hop].reshape(-1, hop).mean(1))
    if level.max() < SILENCE_RMS:
        return []
    level, quiet = level / level.max(), max(1, round(BEEP_QUIET_S * 250))
    padded = np.concatenate([np.zeros(quiet), level])
    onsets = []
    for i in range(len(level)):
        previous = padded[i + quiet - 1]
        if level[i] >= BEEP_ON > previous and padded[i : i + quiet].min() < BEEP_OFF:
            onsets.append(i / 250)
    return onsets


def measure_pan(sound, times, x):
    """Correlation of the stereo balance with the horizontal place, both at the frame times."""
    width, balance, places = SAMPLE_RATE_HZ // FRAMES_PER_SECOND, [], []
    for time, place in zip(times, x):
        start = int(time * SAMPLE_RATE_HZ)
        if start + width > sound.shape[1]:
            break
        left, right = np.sqrt((sound[:, start : start + width] ** 2).mean(1))
        if left + right > SILENCE_RMS:
            balance.append(math.atan2(right, left))
            places.append(place)
    if len(balance) < 8 or np.std(balance) < 1e-6 or np.std(places) < 1e-6:
        return None
    return float(np.corrcoef(balance, places)[0, 1])


def judge(frames: np.ndarray, sound: np.ndarray) -> Verdict:
    """frames [frames, height, width, 3] in [0, 1]; sound [2, samples] at 32 kHz."""
    verdict = Verdict()
    height, width = frames.shape[1:3]
    opacity = opacities(frames)
    mask, area = opacity > 0.5, opacity.sum((1, 2))
    seen = np.flatnonzero(area > 0)
    verdict.seen_share = len(seen) / len(frames)
    measure_pitch(verdict, sound)
    if len(seen) < 6:
        return verdict
    columns, rows = np.arange(width) + 0.5, np.arange(height) + 0.5
    x, y = np.zeros(len(frames)), np.zeros(len(frames))
    x[seen] = (opacity.sum(1) @ columns)[seen] / area[seen]
    y[seen] = (opacity.sum(2) @ rows)[seen] / area[seen]

    pixels = [frames[f][ndimage.binary_erosion(mask[f])] for f in seen[::4]]
    pixels = np.concatenate(pixels)
    if len(pixels):
        distance = np.linalg.norm(np.array(COLOUR_RGB) / 255 - np.median(pixels, axis=0), axis=1)
        if distance.min() < COLOUR_MAX_DISTANCE:
            verdict.colour = COLOURS[int(distance.argmin())]

    at_edge = mask[:, [0, -1]].any((1, 2)) | mask[:, :, [0, -1]].any((1, 2))
    usable = seen[~at_edge[seen]]
    best = None
    if len(usable) >= 3:
        best, verdict.shape_overlap = measure_shape(opacity, x, y, area, usable)
        if verdict.shape_overlap > SHAPE_MIN_OVERLAP:
            verdict.shape = SHAPES[best]

    def turn_of():
        return 0.0 if best is None else measure_turn(opacity, x, y, area, usable, best)

    times = seen / FRAMES_PER_SECOND
    track_x, track_y, radius = x[seen] / height, y[seen] / height, np.sqrt(area[seen]) / height
    measure_motion(verdict, times, track_x, track_y, radius, width / height, turn_of)
    if verdict.motion == "bouncing":
        verdict.beeps_s = measure_beeps(sound)
    if np.ptp(track_x) > 0.15:
        verdict.pan_correlation = measure_pan(sound, times, track_x)
    return verdict
