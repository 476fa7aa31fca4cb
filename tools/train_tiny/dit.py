"""The packed video + audio transformer, with the official parameter names and row orders."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from config import DitConfig, Geometry
from text_encoder import RmsNorm
from video_vae import rotate_halves

TEXT, AUDIO, VIDEO = 1, 2, 0  # modality tags; the packed order is text, audio, video
# Stored as float32, in the official checkpoint too: everything that meets noise levels or latents.
FLOAT32_TENSORS = ("video_patch_proj", "audio_patch_proj", "time_embedder", "rope", "final_layer.video_out", "final_layer.audio_out")  # fmt: skip
CONDITION_TIME = 0.999  # at which visual conditions stand, and their share of signal
FRAME_SPANS = tuple(5 / 3 * frames for frames in (1, 4, 4, 4, 4))  # in audio latents


def position_ids(text_lengths, padded_length: int, geometry: Geometry, keyframe: bool = False):
    """[batch, rows, 3] (t, h, w) of every packed row; the media clock starts where the text ends.

    keyframe: the rows of a first frame stand between text and sound, at the clock's start.
    """
    h, w = geometry.latent_height, geometry.latent_width
    area = math.sqrt(h * w)

    def axis(n):
        ratio = n / area
        return (1 - ratio) / 2 * 32 + torch.arange(n // 2, dtype=torch.float64) * (ratio / (n // 2)) * 32

    rows, columns, zero = axis(h), axis(w), torch.zeros(1, dtype=torch.float64)
    text = torch.cartesian_prod(torch.arange(padded_length, dtype=torch.float64), zero, zero)
    clock = torch.arange(geometry.audio_latents, dtype=torch.float64)
    audio = torch.cat([torch.cartesian_prod(clock, zero, columns[i].view(1)) for i in (0, -1)])
    starts = [0.0]
    for k in range(geometry.latent_frames - 1):
        starts.append(starts[-1] + FRAME_SPANS[k % 5])
    video = torch.cartesian_prod(torch.tensor(starts, dtype=torch.float64), rows, columns)
    first = [torch.cartesian_prod(zero, rows, columns)] if keyframe else []
    media = torch.cat([*first, audio, video]).to(text_lengths.device)
    media = media[None].repeat(len(text_lengths), 1, 1)
    media[:, :, 0] += text_lengths[:, None]
    text = text.to(text_lengths.device)[None].expand(len(text_lengths), -1, -1)
    return torch.cat([text, media], dim=1).float()


def patchify(latents):
    """[batch, T, h, w, 24] -> video rows [batch, T * h/2 * w/2, 96], features ordered (c, py, px)."""
    batch, t, h, w, c = latents.shape
    x = latents.view(batch, t, h // 2, 2, w // 2, 2, c).permute(0, 1, 2, 4, 6, 3, 5)
    return x.reshape(batch, t * (h // 2) * (w // 2), c * 4)


def unpatchify(rows, geometry: Geometry):
    t, h, w = geometry.latent_frames, geometry.latent_height, geometry.latent_width
    x = rows.view(rows.shape[0], t, h // 2, w // 2, -1, 2, 2).permute(0, 1, 2, 5, 3, 6, 4)
    return x.reshape(rows.shape[0], t, h, w, -1)


class Attention(nn.Module):
    def __init__(self, config: DitConfig):
        super().__init__()
        self.heads, self.head_dim = config.heads, config.head_dim
        inner = config.heads * config.head_dim
        self.qkv_proj = nn.Linear(config.hidden, 3 * inner, bias=False)
        self.out_proj = nn.Linear(inner, config.hidden, bias=False)
        self.q_norm = RmsNorm(config.head_dim, config.eps)
        self.k_norm = RmsNorm(config.head_dim, config.eps)

    def forward(self, x, rope, mask):
        # Rows are interleaved per head: [heads][q, k, v][head_dim].
        qkv = self.qkv_proj(x).unflatten(-1, (self.heads, 3, self.head_dim))
        q, k, v = qkv.permute(3, 0, 2, 1, 4)
        q, k = self.q_norm(q), self.k_norm(k)
        if rope is not None:
            q, k = (rotate_halves(part, *rope) for part in (q, k))
        y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, attn_mask=mask)
        return self.out_proj(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, config: DitConfig):
        super().__init__()
        self.fc1 = nn.Linear(config.hidden, 2 * config.ffn, bias=False)
        self.fc2 = nn.Linear(config.ffn, config.hidden, bias=False)

    def forward(self, x):
        gate, value = self.fc1(x).chunk(2, dim=-1)
        return self.fc2(F.silu(gate) * value)


class RefinerBlock(nn.Module):
    def __init__(self, config: DitConfig):
        super().__init__()
        self.norm1, self.norm2 = RmsNorm(config.hidden, config.eps), RmsNorm(config.hidden, config.eps)
        self.attn, self.mlp = Attention(config), Mlp(config)

    def forward(self, x, mask):
        x = x + self.attn(self.norm1(x), None, mask)
        return x + self.mlp(self.norm2(x))


class AdaLn(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)


# Which of a block's modulation vectors a packed segment gets.
OF_TEXT, OF_AUDIO, OF_VIDEO, OF_KEYFRAME = range(4)


def per_segment(vectors, segments):
    """[batch, kinds, hidden] -> [batch, rows, hidden]; segments: (rows, kind) of each in packed order."""
    return torch.cat([vectors[:, kind, None].expand(-1, rows, -1) for rows, kind in segments], dim=1)


class Block(nn.Module):
    def __init__(self, config: DitConfig):
        super().__init__()
        self.hidden = config.hidden
        self.norm1, self.norm2 = RmsNorm(config.hidden, config.eps), RmsNorm(config.hidden, config.eps)
        self.attn, self.mlp = Attention(config), Mlp(config)
        self.adaln_proj = AdaLn(config.time_dim, 3 * 6 * config.hidden)

    def modulation(self, times):
        """Six vectors for each kind of segment: list of 6 x [batch, kinds (text, audio, video, and the
        keyframe where there are three times), hidden]."""
        video, audio, *keyframe = (
            self.adaln_proj.linear(t).float().unflatten(-1, (3, 6, self.hidden)) for t in times
        )
        table = [video[:, TEXT], audio[:, AUDIO], video[:, VIDEO], *(k[:, VIDEO] for k in keyframe)]
        return torch.stack(table, dim=1).unbind(dim=2)

    def forward(self, x, times: tuple, cos, sin, mask, segments: tuple):
        vectors = self.modulation(times)
        shift1, scale1, gate1, shift2, scale2, gate2 = (per_segment(v, segments) for v in vectors)
        y = self.norm1(x) * (1 + scale1) + shift1
        x = x + gate1 * self.attn(y, (cos, sin), mask)
        y = self.norm2(x) * (1 + scale2) + shift2
        return x + gate2 * self.mlp(y)


class TimeEmbedder(nn.Module):
    def __init__(self, config: DitConfig):
        super().__init__()
        self.frequency_dim = config.frequency_dim
        self.proj_in = nn.Linear(config.frequency_dim, config.time_hidden)
        self.proj_out = nn.Linear(config.time_hidden, config.time_dim)
        # t in [0, 1] moves the sinusoids by a radian at most. Hidden units that bend at random
        # times, denser near t = 0 where sampling spends most steps, make the curve easy to learn.
        nn.init.normal_(self.proj_in.weight)
        bends = torch.rand(config.time_hidden).square()
        with torch.no_grad():
            self.proj_in.bias.copy_(-(self.proj_in.weight * self.features(bends)).sum(-1))

    def features(self, t):
        half = self.frequency_dim // 2
        k = torch.arange(half, dtype=torch.float32, device=t.device)
        angles = t[:, None] * torch.exp(-math.log(10000.0) * k / half)
        return torch.cat([angles.cos(), angles.sin()], dim=-1)

    def forward(self, t):
        return self.proj_out(F.silu(self.proj_in(self.features(t))))


class Rope(nn.Module):
    def __init__(self, frequencies):
        super().__init__()
        steps = torch.arange(frequencies, dtype=torch.float32)
        self.register_buffer("inv_freq", 1 / 10000 ** (2 * steps / (2 * frequencies)))

    def forward(self, positions):
        """[batch, rows, 3] -> cos, sin [batch, 1, rows, 3 * frequencies]."""
        angles = (positions[..., None] * self.inv_freq).flatten(2)[:, None]
        return angles.cos(), angles.sin()


class FinalLayer(nn.Module):
    def __init__(self, config: DitConfig):
        super().__init__()
        self.norm = RmsNorm(config.hidden, config.eps)
        self.adaln_proj = AdaLn(config.time_dim, 2 * config.hidden)
        self.video_out = nn.Linear(config.hidden, 4 * config.video_channels)
        self.audio_out = nn.Linear(config.hidden, config.audio_channels)
        for head in (self.video_out, self.audio_out):
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)

    def modulate(self, x, time):
        shift, scale = self.adaln_proj.linear(time)[:, None].chunk(2, dim=-1)
        return self.norm(x) * (1 + scale) + shift


class TokenRefiner(nn.Module):
    def __init__(self, config: DitConfig):
        super().__init__()
        self.blocks = nn.ModuleList(RefinerBlock(config) for _ in range(config.refiner_blocks))
        self.final_norm = RmsNorm(config.hidden, config.eps)

    def forward(self, x, mask):
        for block in self.blocks:
            x = block(x, mask)
        return self.final_norm(x)


class Dit(nn.Module):
    def __init__(self, config: DitConfig = DitConfig()):
        super().__init__()
        self.config = config
        self.video_patch_proj = nn.Linear(4 * config.video_channels, config.hidden)
        self.audio_patch_proj = nn.Linear(config.audio_channels, config.hidden)
        self.condition_proj = nn.Linear(config.text_dim, config.hidden)
        self.time_embedder = TimeEmbedder(config)
        self.rope = Rope(config.rope_frequencies)
        self.token_refiner = TokenRefiner(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.blocks))
        self.final_layer = FinalLayer(config)
        for module in [*self.blocks.modules(), *self.token_refiner.modules()]:
            if isinstance(module, nn.Linear) and module.bias is None:
                nn.init.normal_(module.weight, std=module.in_features**-0.5)

    def refine_text(self, text_states, text_mask):
        return self.token_refiner(self.condition_proj(text_states).float(), text_mask)

    def forward(self, video, audio, text, t_video, t_audio, rope, mask=None, keyframe=None, presented=None):
        """Velocities (video, audio) of the target rows.

        video [batch, Nv, 96], audio [batch, Na, 32]; text: refined rows [batch, L, hidden];
        t_video, t_audio [batch]; rope: cos, sin of all rows; mask: True where a key may be seen;
        keyframe: rows of a first frame [batch, Nk, 96], with `presented`, what the text says of it.
        """
        text_rows, audio_rows, video_rows = text.shape[1], audio.shape[1], video.shape[1]
        segments = [(text_rows, OF_TEXT)]
        times, conditions = [t_video, t_audio], []
        with torch.autocast(video.device.type, enabled=False):
            x_audio, x_video = self.audio_patch_proj(audio), self.video_patch_proj(video)
            if keyframe is not None:
                label, visual = presented.label_rows, presented.visual_rows
                segments = [(label, OF_TEXT), (visual, OF_VIDEO), (text_rows - label - visual, OF_TEXT)]
                segments.append((keyframe.shape[1], OF_KEYFRAME))
                times.append(t_video.clamp(min=CONDITION_TIME))
                conditions.append(self.video_patch_proj(keyframe))
            embedded = tuple(F.silu(self.time_embedder(t)) for t in times)
        segments += [(audio_rows, OF_AUDIO), (video_rows, OF_VIDEO)]
        x = torch.cat([text.float(), *conditions, x_audio, x_video], dim=1)
        for block in self.blocks:
            x = block(x, embedded, *rope, mask, tuple(segments))
        with torch.autocast(video.device.type, enabled=False):
            x_audio, x_video = x[:, -audio_rows - video_rows : -video_rows], x[:, -video_rows:]
            v_video = self.final_layer.video_out(self.final_layer.modulate(x_video, embedded[0]))
            v_audio = self.final_layer.audio_out(self.final_layer.modulate(x_audio, embedded[1]))
        return v_video, v_audio

    def compile_blocks(self):
        """Compiles the block once per sequence shape; all blocks share the code."""
        torch._dynamo.config.recompile_limit = 64
        for block in self.blocks:
            block.compile(dynamic=False)
