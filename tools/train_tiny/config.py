"""Dimensions of h3-tiny. Every other module reads them from here; `export.py` writes them out as
the official config files."""

from dataclasses import dataclass

FRAMES_PER_SECOND = 24
SAMPLE_RATE_HZ = 32000
SAMPLES_PER_LATENT = 800
SPATIAL_FACTOR = 16
CLIP_FRAMES = 17  # pixel frames of one encoder clip ...
CLIP_LATENTS = 5  # ... and the latents it becomes
WINDOW_LATENTS = 7  # latents the decoder sees at once
VIDEO_SHIFT = 12.0
AUDIO_SHIFT = 3.0
PIXEL_MEAN = (0.485, 0.456, 0.406)
PIXEL_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Geometry:
    """Size of one clip. Frames must be 17n + 5, width and height multiples of 32."""

    width: int
    height: int
    frames: int

    @property
    def aspect(self) -> float:
        return self.width / self.height

    @property
    def duration_s(self) -> float:
        return self.frames / FRAMES_PER_SECOND

    @property
    def latent_frames(self) -> int:
        return (self.frames - 5) // 17 * 5 + 2

    @property
    def latent_height(self) -> int:
        return self.height // SPATIAL_FACTOR

    @property
    def latent_width(self) -> int:
        return self.width // SPATIAL_FACTOR

    @property
    def audio_latents(self) -> int:
        return round(self.frames / FRAMES_PER_SECOND * 40)

    @property
    def frame_rows(self) -> int:
        return (self.latent_height // 2) * (self.latent_width // 2)

    @property
    def video_rows(self) -> int:
        return self.latent_frames * self.frame_rows

    @property
    def audio_rows(self) -> int:
        return 2 * self.audio_latents


DEFAULT_GEOMETRY = Geometry(192, 128, 39)
TRAIN_GEOMETRIES = (DEFAULT_GEOMETRY, Geometry(256, 160, 39), Geometry(192, 128, 56))


@dataclass(frozen=True)
class VideoVaeConfig:
    latent_channels: int = 24
    channels: int = 32
    multipliers: tuple = (1, 1, 1, 2, 2, 3)
    blocks_per_level: int = 1
    space_down: tuple = (2, 2, 2, 2, 1, 1)
    time_down: tuple = (1, 2, 2, 1, 1, 1)
    width: int = 192
    layers: int = 4
    heads: int = 3
    head_dim: int = 64
    ffn: int = 384
    registers: int = 4
    rope_ratio: float = 0.75
    rope_theta: float = 100.0


@dataclass(frozen=True)
class AudioVaeConfig:
    latent_channels: int = 32
    encoder_dim: int = 4
    encoder_rates: tuple = (2, 4, 4, 5, 5)
    latent_dim: int = 256
    attention_heads: int = 8
    decoder_dim: int = 128
    decoder_rates: tuple = (5, 5, 2, 2, 2, 2, 2)
    resblock_kernels: tuple = (3, 7, 11)
    resblock_dilations: tuple = (1, 3, 5)


@dataclass(frozen=True)
class TextConfig:
    hidden: int = 128
    used_layers: int = 3
    layers: int = 4  # as the config states it; the tail layer is never run and not stored
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 64
    ffn: int = 384
    rope_theta: float = 5_000_000.0
    mrope_section: tuple = (12, 10, 10)
    eps: float = 1e-6
    max_tokens: int = 46  # training pads captions to this; generation has no limit


@dataclass(frozen=True)
class VisionConfig:
    hidden: int = 24
    depth: int = 3
    heads: int = 2
    ffn: int = 48
    patch: int = 16
    temporal_patch: int = 2
    merge: int = 2
    positions: int = 256
    deepstack: tuple = (0, 1, 2)


@dataclass(frozen=True)
class DitConfig:
    hidden: int = 256
    blocks: int = 6
    refiner_blocks: int = 1
    heads: int = 4
    head_dim: int = 64
    ffn: int = 512
    video_channels: int = 24
    audio_channels: int = 32
    text_dim: int = 128
    frequency_dim: int = 256
    time_hidden: int = 256
    time_dim: int = 16
    rope_frequencies: int = 8
    eps: float = 1e-5
