"""The audio VAE: strided Snake encoder, attention projection, BigVGAN-style decoder.

Official parameter names. One network for mono; the two stereo channels are two batch items.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from config import AudioVaeConfig

FILTER_TAPS = 12


def anti_alias_filter() -> torch.Tensor:
    """Kaiser-windowed sinc, cutoff 0.25, transition half width 0.3, 12 taps."""
    cutoff, half_width, half_size = 0.25, 0.3, FILTER_TAPS // 2
    attenuation = 2.285 * (half_size - 1) * math.pi * 4 * half_width + 7.95
    window = torch.kaiser_window(FILTER_TAPS, periodic=False, beta=0.1102 * (attenuation - 8.7), dtype=torch.float64)
    time = torch.arange(FILTER_TAPS, dtype=torch.float64) - half_size + 0.5
    taps = 2 * cutoff * window * torch.sinc(2 * cutoff * time)
    return (taps / taps.sum()).float()


class WeightNormed(nn.Module):
    """weight = g * v / |v|, the norm over all dimensions but the first."""

    def __init__(self, shape, bias_size):
        super().__init__()
        self.weight_v = nn.Parameter(torch.empty(shape))
        nn.init.kaiming_uniform_(self.weight_v, a=math.sqrt(5))
        self.weight_g = nn.Parameter(self.weight_v.detach().flatten(1).norm(dim=1).view(-1, 1, 1))
        self.bias = nn.Parameter(torch.zeros(bias_size)) if bias_size else None

    def weight(self):
        norm = self.weight_v.flatten(1).norm(dim=1).view(-1, 1, 1)
        return self.weight_v * (self.weight_g / norm)


class Conv1d(WeightNormed):
    def __init__(self, inputs, outputs, kernel, stride=1, padding=0, dilation=1, bias=True):
        super().__init__((outputs, inputs, kernel), outputs if bias else 0)
        self.stride, self.padding, self.dilation = stride, padding, dilation

    def forward(self, x):
        return F.conv1d(x, self.weight(), self.bias, self.stride, self.padding, self.dilation)


class ConvTranspose1d(WeightNormed):
    def __init__(self, inputs, outputs, kernel, stride, padding):
        super().__init__((inputs, outputs, kernel), outputs)
        self.stride, self.padding = stride, padding

    def forward(self, x):
        return F.conv_transpose1d(x, self.weight(), self.bias, self.stride, self.padding)


class Snake(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x):
        return x + torch.sin(self.alpha * x).square() / (self.alpha + 1e-9)


class ResidualUnit(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.block = nn.Sequential(
            Snake(channels),
            Conv1d(channels, channels, 7, padding=3 * dilation, dilation=dilation),
            Snake(channels),
            Conv1d(channels, channels, 1),
        )

    def forward(self, x):
        return x + self.block(x)


class EncoderBlock(nn.Module):
    def __init__(self, channels, stride):
        super().__init__()
        self.block = nn.Sequential(
            *(ResidualUnit(channels, dilation) for dilation in (1, 3, 9)),
            Snake(channels),
            Conv1d(channels, 2 * channels, 2 * stride, stride, math.ceil(stride / 2)),
        )

    def forward(self, x):
        return self.block(x)


class Encoder(nn.Module):
    def __init__(self, config: AudioVaeConfig):
        super().__init__()
        layers, channels = [Conv1d(1, config.encoder_dim, 7, padding=3)], config.encoder_dim
        for rate in config.encoder_rates:
            layers.append(EncoderBlock(channels, rate))
            channels *= 2
        layers += [Snake(channels), Conv1d(channels, config.latent_dim, 3, padding=1)]
        self.block = nn.Sequential(*layers)

    def forward(self, x):
        return self.block(x)


class PooledAttention(nn.Module):
    """Causal attention whose heads are averaged, then pooled to the latent width."""

    def __init__(self, config: AudioVaeConfig):
        super().__init__()
        self.heads, self.outputs = config.attention_heads, config.latent_channels
        self.qkv = nn.Linear(config.latent_dim, 3 * config.latent_dim, bias=False)
        self.q_bias = nn.Parameter(torch.zeros(config.latent_dim))
        self.v_bias = nn.Parameter(torch.zeros(config.latent_dim))
        self.register_buffer("zero_k_bias", torch.zeros(config.latent_dim))
        self.proj = nn.Linear(config.latent_channels, config.latent_channels)

    def forward(self, x):
        bias = torch.cat([self.q_bias, self.zero_k_bias, self.v_bias])
        qkv = F.linear(x, self.qkv.weight, bias)
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).mean(dim=1)
        return self.proj(y.unflatten(-1, (self.outputs, -1)).mean(-1))


class GatedMlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.w0, self.w1 = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.w2 = nn.Linear(2 * width, width)

    def forward(self, x):
        x = self.norm(x)
        return self.w2(F.gelu(self.w0(x), approximate="tanh") * self.w1(x))


class AttentionProjection(nn.Module):
    def __init__(self, config: AudioVaeConfig):
        super().__init__()
        self.norm1, self.norm3 = nn.LayerNorm(config.latent_dim), nn.LayerNorm(config.latent_dim)
        self.norm2 = nn.LayerNorm(config.latent_channels)
        self.attn = PooledAttention(config)
        self.proj = nn.Linear(config.latent_dim, config.latent_channels)
        self.mlp = GatedMlp(config.latent_channels)

    def forward(self, x):
        y = self.proj(self.norm3(x)) + self.attn(self.norm1(x))
        return y + self.mlp(self.norm2(y))


class SnakeBeta(nn.Module):
    """Logarithmic parameters, run at twice the rate so that its harmonics do not alias."""

    def __init__(self, channels):
        super().__init__()
        self.act = nn.Module()
        self.act.alpha = nn.Parameter(torch.zeros(channels))
        self.act.beta = nn.Parameter(torch.zeros(channels))
        taps, zero = anti_alias_filter(), torch.zeros(1)
        # Even and odd output samples each see every second tap (torch correlates, hence the flip).
        even, odd = torch.cat([taps[1::2].flip(0), zero]), torch.cat([zero, taps[0::2].flip(0)])
        self.register_buffer("up", 2 * torch.stack([even, odd])[:, None], persistent=False)
        self.register_buffer("down", taps[None, None], persistent=False)

    def forward(self, x):
        batch, channels, length = x.shape
        y = F.pad(x, (3, 3), mode="replicate").view(batch * channels, 1, length + 6)
        y = F.conv1d(y, self.up).transpose(1, 2).reshape(batch, channels, 2 * length)
        alpha, beta = self.act.alpha.exp()[:, None], self.act.beta.exp()[:, None]
        y = y + torch.sin(alpha * y).square() / (beta + 1e-9)
        y = F.pad(y, (5, 6), mode="replicate").view(batch * channels, 1, 2 * length + 11)
        return F.conv1d(y, self.down, stride=2).view(batch, channels, length)


class ResBlock(nn.Module):
    def __init__(self, channels, kernel, dilations):
        super().__init__()
        self.convs1 = nn.ModuleList(
            Conv1d(channels, channels, kernel, padding=d * (kernel - 1) // 2, dilation=d) for d in dilations
        )
        self.convs2 = nn.ModuleList(
            Conv1d(channels, channels, kernel, padding=(kernel - 1) // 2) for _ in dilations
        )
        self.activations = nn.ModuleList(SnakeBeta(channels) for _ in range(2 * len(dilations)))

    def forward(self, x):
        for n, (conv1, conv2) in enumerate(zip(self.convs1, self.convs2)):
            y = conv1(self.activations[2 * n](x))
            x = x + conv2(self.activations[2 * n + 1](y))
        return x


class Decoder(nn.Module):
    def __init__(self, config: AudioVaeConfig):
        super().__init__()
        self.kernels = len(config.resblock_kernels)
        channels = config.decoder_dim
        self.conv_pre = Conv1d(config.latent_dim, channels, 7, padding=3)
        self.ups, self.resblocks = nn.ModuleList(), nn.ModuleList()
        for rate in config.decoder_rates:
            kernel = 9 if rate == 5 else 2 * rate
            up = ConvTranspose1d(channels, channels // 2, kernel, rate, (kernel - rate) // 2)
            self.ups.append(nn.ModuleList([up]))
            channels //= 2
            for size in config.resblock_kernels:
                self.resblocks.append(ResBlock(channels, size, config.resblock_dilations))
        self.activation_post = SnakeBeta(channels)
        self.conv_post = Conv1d(channels, 1, 7, padding=3, bias=False)

    def forward(self, x):
        x = self.conv_pre(x)
        for i, up in enumerate(self.ups):
            x = up[0](x)
            blocks = self.resblocks[i * self.kernels : (i + 1) * self.kernels]
            x = sum(block(x) for block in blocks) / self.kernels
        return self.conv_post(self.activation_post(x))


class AudioVae(nn.Module):
    def __init__(self, config: AudioVaeConfig = AudioVaeConfig()):
        super().__init__()
        self.encoder, self.pre_block = Encoder(config), AttentionProjection(config)
        channels = config.latent_channels
        self.mean_proj, self.logs_proj = nn.Conv1d(channels, channels, 1), nn.Conv1d(channels, channels, 1)
        self.dec_in_proj = nn.Conv1d(channels, config.latent_dim, 1)
        self.decoder = Decoder(config)

    def encode_moments(self, waveform):
        """[batch, samples] -> mean and log standard deviation [batch, latents, 32]."""
        x = self.encoder(waveform[:, None]).transpose(1, 2)
        x = self.pre_block(x).transpose(1, 2)
        return self.mean_proj(x).transpose(1, 2), self.logs_proj(x).transpose(1, 2)

    def decode_unclamped(self, z):
        return self.decoder(self.dec_in_proj(z.transpose(1, 2)))[:, 0]

    def decode(self, z):
        """[batch, latents, 32] -> [batch, samples] in [-1, 1]."""
        return self.decode_unclamped(z).clamp(-1, 1)
