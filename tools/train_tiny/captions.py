"""English captions for scenes: a small grammar with several wordings per attribute."""

import random

from scenes import BACKGROUNDS, COLOURS, MOTIONS, SHAPES, SIZES, SPEEDS, Scenes

_SIZE_WORDS = {"small": ("small", "tiny", "little"), "medium": ("", "medium-sized"), "large": ("large", "big")}
_SPEED_WORDS = {
    "slow": ("slowly", "gently", "at a slow pace"),
    "medium": ("", "steadily", "at a medium pace"),
    "fast": ("quickly", "fast", "at high speed"),
}
_MOTION_PHRASES = {
    "left": ("moves {a} to the left", "slides {a} leftwards", "travels {a} from right to left", "is moving left {a}"),
    "right": ("moves {a} to the right", "slides {a} rightwards", "travels {a} from left to right", "is moving right {a}"),
    "up": ("moves {a} upwards", "rises {a}", "floats up {a}", "is going up {a}"),
    "down": ("moves {a} downwards", "sinks {a}", "falls {a}", "is going down {a}"),
    "circling": ("moves {a} in a circular path", "circles {a} around the center", "goes around in circles {a}"),
    "bouncing": ("bounces {a}", "is bouncing up and down {a}", "hops {a}", "keeps bouncing {a}"),
    "growing": ("grows {a}", "gets bigger {a}", "is growing {a} in place", "expands {a}"),
    "spinning": ("spins {a} in place", "rotates {a}", "is turning {a} around itself", "spins {a}"),
}  # fmt: skip
# A tone per shape, lowest to highest.
_PITCH_WORDS = (("very low", "deep"), ("low",), ("medium",), ("high",), ("very high", "shrill"))
_TONE_WORDS = ("tone", "note", "hum", "sound")
# For a clip that begins with a given picture: what is on it need not be said.
_UNNAMED_SUBJECTS = ("the shape", "this shape", "the figure", "it")
_OPENINGS = ("", "", "", "A video of {s}", "An animation: {s}", "In this clip, {s}", "We see {s}")


def _background_phrase(rng, top, bottom, motion):
    if top != bottom:
        place = rng.choice(("background", "backdrop"))
        return rng.choice(
            (f"on a {place} fading from {top} to {bottom}", f"on a gradient from {top} to {bottom}")
        )
    if motion == "bouncing":
        return rng.choice((f"on a {top} floor", f"on a {top} background", f"in a {top} room"))
    return rng.choice(
        (f"on a {top} background", f"over a plain {top} backdrop", f"in front of a {top} wall", f"on {top}")
    )


def _sound_phrase(rng, shape, motion):
    pitch = rng.choice(_PITCH_WORDS[SHAPES.index(shape)])
    if motion == "bouncing":
        return rng.choice(
            (f", a {pitch} beep at each bounce", f", with a {pitch} beep whenever it lands", f", beeping with a {pitch} note on every bounce")
        )  # fmt: skip
    word = rng.choice(_TONE_WORDS)
    return rng.choice((f", with a {pitch} {word}", f" while a {pitch} {word} plays", f", making a {pitch} {word}"))


def unnamed_caption(scenes: Scenes, index: int, rng: random.Random) -> str:
    """The motion of scene `index`, and nothing that its first frame shows: no shape, colour, place or pitch."""
    motion, speed = MOTIONS[scenes.motion[index]], SPEEDS[scenes.speed[index]]
    action = rng.choice(_MOTION_PHRASES[motion]).format(a=rng.choice(_SPEED_WORDS[speed]))
    sentence = f"{rng.choice(_UNNAMED_SUBJECTS)} {' '.join(action.split())}"
    if motion == "bouncing" and rng.random() < 0.5:
        sentence += ", beeping on every bounce"
    if rng.random() < 0.5:
        sentence = sentence[0].upper() + sentence[1:]
    return sentence + (rng.choice((".", "")))


def caption(scenes: Scenes, index: int, rng: random.Random) -> str:
    """One wording of scene `index`. Attributes that are the default may stay unsaid."""
    shape, colour = SHAPES[scenes.shape[index]], COLOURS[scenes.colour[index]]
    motion, speed = MOTIONS[scenes.motion[index]], SPEEDS[scenes.speed[index]]
    top = BACKGROUNDS[scenes.background[index]]
    bottom = BACKGROUNDS[scenes.background_bottom[index]]
    size = rng.choice(_SIZE_WORDS[SIZES[scenes.size[index]]])

    article = "an" if (size or colour)[0] in "aeiou" else "a"
    subject = " ".join(word for word in (article, size, colour, shape) if word)
    action = rng.choice(_MOTION_PHRASES[motion]).format(a=rng.choice(_SPEED_WORDS[speed]))
    action = " ".join(action.split())
    place = _background_phrase(rng, top, bottom, motion)
    place_first = rng.random() < 0.15
    sentence = f"{place}, {subject} {action}" if place_first else f"{subject} {action} {place}"
    if scenes.has_second[index]:
        second_colour = COLOURS[scenes.second_colour[index]]
        second_article = "an" if second_colour[0] in "aeiou" else "a"
        side = "right" if scenes.second_right[index] else "left"
        sentence += f", {second_article} {second_colour} {SHAPES[scenes.second_shape[index]]} rests in the upper {side} corner"
    if rng.random() < 0.6:
        sentence += _sound_phrase(rng, shape, motion)
    opening = rng.choice(_OPENINGS)
    if opening and not place_first:
        sentence = opening.format(s=sentence)
    if rng.random() < 0.5:
        sentence = sentence[0].upper() + sentence[1:]
    return sentence + (rng.choice((".", "")))
