"""Encoded training clips with captions, kept on the training device."""

import random

import torch

from audio import soundtrack
from captions import caption, unnamed_caption
from config import Geometry, TextConfig
from dit import patchify
from keyframes import Presented, random_keyframe, with_picture
from render import render
from scenes import Scenes, sample_scenes
from sampler import rope_of

CAPTIONS_PER_CLIP = 4
UNNAMED_PER_CLIP = 2  # as many of the others go with a first frame, too
ENCODE_BATCH = 32


def tokenise(tokenizer, scenes: Scenes, rng: random.Random, wordings: int, unnamed: int = 0):
    """Ids [clips, wordings + unnamed, max_tokens] (zero beyond the end) and lengths [clips, wordings +
    unnamed]; the last `unnamed` do not say what a first frame shows."""
    limit, texts = TextConfig().max_tokens, []
    for index in range(len(scenes)):
        for make in [caption] * wordings + [unnamed_caption] * unnamed:
            text = make(scenes, index, rng)
            while len(tokenizer.encode(text).ids) > limit:
                text = make(scenes, index, rng)
            texts.append(text)
    encoded = [e.ids for e in tokenizer.encode_batch(texts)]
    ids = torch.tensor([row + [0] * (limit - len(row)) for row in encoded], dtype=torch.int32)
    lengths = torch.tensor([len(row) for row in encoded], dtype=torch.int64)
    count = wordings + unnamed
    return ids.view(len(scenes), count, limit), lengths.view(len(scenes), count)


class Autoencoders:
    """Both frozen VAEs with their latent statistics."""

    def __init__(self, video_vae, audio_vae, video_state, audio_state, device):
        self.video, self.audio = video_vae, audio_vae
        for module, state in ((video_vae, video_state), (audio_vae, audio_state)):
            state = dict(state)
            mean, std = state.pop("latents_mean").to(device), state.pop("latents_std").to(device)
            module.load_state_dict(state)
            module.to(device).eval().requires_grad_(False)
            module.latents_mean, module.latents_std = mean, std
        self.device = device

    def encode(self, scenes: Scenes, geometry: Geometry):
        """Normalised rows: video [clips, Nv, 96], audio [clips, 2A, 32]."""
        return self.encode_with_spread(scenes, geometry)[:2]

    @torch.no_grad()
    def encode_with_spread(self, scenes: Scenes, geometry: Geometry):
        """encode(), and the posterior's deviation in the rows of the first latent frame, [clips, Nk, 96]:
        as a keyframe, that frame alone is encoded, with the same result, and sampled."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            latents, log_variance = self.video.encode_moments(render(scenes, geometry))
        latents = (latents - self.video.latents_mean) / self.video.latents_std
        spread = patchify(torch.exp(0.5 * log_variance[:, :1]) / self.video.latents_std)
        sound = self.audio.encode_moments(soundtrack(scenes, geometry).flatten(0, 1))[0]
        sound = (sound - self.audio.latents_mean) / self.audio.latents_std
        return patchify(latents), sound.reshape(len(scenes), geometry.audio_rows, -1), spread

    @torch.no_grad()
    def decode_video(self, latents):
        """Normalised latents [T, h, w, 24] -> frames [F, H, W, 3]."""
        return self.video.decode(latents[None] * self.video.latents_std + self.video.latents_mean)[0]

    @torch.no_grad()
    def decode_audio(self, rows):
        """Normalised rows [2A, 32] -> waveform [2, samples]."""
        latents = rows.reshape(2, -1, rows.shape[-1])
        return self.audio.decode(latents * self.audio.latents_std + self.audio.latents_mean)

    def decode(self, latents, rows):
        return self.decode_video(latents), self.decode_audio(rows)


class ClipStore:
    """A ring of encoded clips of one geometry; old ones are overwritten while training goes on."""

    def __init__(self, geometry: Geometry, capacity: int, device):
        limit = TextConfig().max_tokens
        self.geometry, self.capacity, self.device = geometry, capacity, device
        shape = (capacity, geometry.video_rows, 96)
        self.video = torch.zeros(shape, dtype=torch.bfloat16, device=device)
        self.audio = torch.zeros(capacity, geometry.audio_rows, 32, dtype=torch.bfloat16, device=device)
        self.spread = torch.zeros(capacity, geometry.frame_rows, 96, dtype=torch.bfloat16, device=device)
        wordings = CAPTIONS_PER_CLIP + UNNAMED_PER_CLIP
        self.ids = torch.zeros(capacity, wordings, limit, dtype=torch.int32, device=device)
        self.lengths = torch.zeros(capacity, wordings, dtype=torch.int64, device=device)
        self.next, self.filled = 0, 0

    def add(self, count, autoencoders, tokenizer, generator, rng, hard_share: float = 0.0):
        scenes = sample_scenes(count, generator, hard_share=hard_share)
        ids, lengths = tokenise(tokenizer, scenes, rng, CAPTIONS_PER_CLIP, UNNAMED_PER_CLIP)
        slots = torch.arange(self.next, self.next + count, device=self.device) % self.capacity
        self.ids[slots], self.lengths[slots] = ids.to(self.device), lengths.to(self.device)
        scenes = scenes.to(self.device)
        for i in range(0, count, ENCODE_BATCH):
            part = slots[i : i + ENCODE_BATCH]
            video, audio, spread = autoencoders.encode_with_spread(scenes[i : i + ENCODE_BATCH], self.geometry)
            self.video[part], self.audio[part] = video.bfloat16(), audio.bfloat16()
            self.spread[part] = spread.bfloat16()
        self.next = (self.next + count) % self.capacity
        self.filled = min(self.capacity, self.filled + count)

    def batch(self, count, presented: Presented | None = None):
        """(video, audio, ids, lengths, keyframe) of random clips, each under a random one of its captions.

        presented: the clips are conditioned on their first frames. Else keyframe is None.
        """
        index = torch.randint(self.filled, (count,), device=self.device)
        low, high = (0, CAPTIONS_PER_CLIP)
        if presented is not None:
            low, high = CAPTIONS_PER_CLIP - UNNAMED_PER_CLIP, CAPTIONS_PER_CLIP + UNNAMED_PER_CLIP
        wording = torch.randint(low, high, (count,), device=self.device)
        ids, lengths = with_picture(presented, self.ids[index, wording].long(), self.lengths[index, wording])
        video, keyframe = self.video[index].float(), None
        if presented is not None:
            mean, std = video[:, : self.geometry.frame_rows], self.spread[index].float()
            keyframe = random_keyframe(mean, std)
        return video, self.audio[index].float(), ids, lengths, keyframe


class RopeTables:
    """Rotary tables for every caption length of one geometry, looked up instead of recomputed.

    presented: for clips that begin with a given picture.
    """

    def __init__(self, dit, geometry: Geometry, device, presented: Presented | None = None):
        prefix = 0 if presented is None else presented.rows
        limit = TextConfig().max_tokens + prefix
        lengths = torch.arange(limit + 1, device=device)
        self.cos, self.sin = rope_of(dit, lengths, limit, geometry, presented is not None)

    def __call__(self, lengths):
        return self.cos[lengths], self.sin[lengths]
