"""Encoded training clips with captions, kept on the training device."""

import random

import torch

from audio import soundtrack
from captions import caption
from config import Geometry, TextConfig
from dit import patchify
from render import render
from scenes import Scenes, sample_scenes
from sampler import rope_of

CAPTIONS_PER_CLIP = 4
ENCODE_BATCH = 32


def tokenise(tokenizer, scenes: Scenes, rng: random.Random, wordings: int):
    """Ids [clips, wordings, max_tokens] (zero beyond the end) and lengths [clips, wordings]."""
    limit, texts = TextConfig().max_tokens, []
    for index in range(len(scenes)):
        for _ in range(wordings):
            text = caption(scenes, index, rng)
            while len(tokenizer.encode(text).ids) > limit:
                text = caption(scenes, index, rng)
            texts.append(text)
    encoded = [e.ids for e in tokenizer.encode_batch(texts)]
    ids = torch.tensor([row + [0] * (limit - len(row)) for row in encoded], dtype=torch.int32)
    lengths = torch.tensor([len(row) for row in encoded], dtype=torch.int64)
    return ids.view(len(scenes), wordings, limit), lengths.view(len(scenes), wordings)


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

    @torch.no_grad()
    def encode(self, scenes: Scenes, geometry: Geometry):
        """Normalised rows: video [clips, Nv, 96], audio [clips, 2A, 32]."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            latents = self.video.encode_moments(render(scenes, geometry))[0]
        latents = (latents - self.video.latents_mean) / self.video.latents_std
        sound = self.audio.encode_moments(soundtrack(scenes, geometry).flatten(0, 1))[0]
        sound = (sound - self.audio.latents_mean) / self.audio.latents_std
        return patchify(latents), sound.reshape(len(scenes), geometry.audio_rows, -1)

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
        self.ids = torch.zeros(capacity, CAPTIONS_PER_CLIP, limit, dtype=torch.int32, device=device)
        self.lengths = torch.zeros(capacity, CAPTIONS_PER_CLIP, dtype=torch.int64, device=device)
        self.next, self.filled = 0, 0

    def add(self, count, autoencoders, tokenizer, generator, rng):
        scenes = sample_scenes(count, generator)
        ids, lengths = tokenise(tokenizer, scenes, rng, CAPTIONS_PER_CLIP)
        slots = torch.arange(self.next, self.next + count, device=self.device) % self.capacity
        self.ids[slots], self.lengths[slots] = ids.to(self.device), lengths.to(self.device)
        scenes = scenes.to(self.device)
        for i in range(0, count, ENCODE_BATCH):
            part = slots[i : i + ENCODE_BATCH]
            video, audio = autoencoders.encode(scenes[i : i + ENCODE_BATCH], self.geometry)
            self.video[part], self.audio[part] = video.bfloat16(), audio.bfloat16()
        self.next = (self.next + count) % self.capacity
        self.filled = min(self.capacity, self.filled + count)

    def batch(self, count):
        """(video, audio, ids, lengths) of random clips, each under a random one of its captions."""
        index = torch.randint(self.filled, (count,), device=self.device)
        wording = torch.randint(CAPTIONS_PER_CLIP, (count,), device=self.device)
        return (
            self.video[index].float(),
            self.audio[index].float(),
            self.ids[index, wording].long(),
            self.lengths[index, wording],
        )


class RopeTables:
    """Rotary tables for every caption length of one geometry, looked up instead of recomputed."""

    def __init__(self, dit, geometry: Geometry, device):
        limit = TextConfig().max_tokens
        lengths = torch.arange(limit + 1, device=device)
        self.cos, self.sin = rope_of(dit, lengths, limit, geometry)

    def __call__(self, lengths):
        return self.cos[lengths], self.sin[lengths]
