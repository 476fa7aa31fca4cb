"""The video VAE: a causal 3D CNN encoder and a ViT decoder, with the official parameter names.

Activations are channels-last, [batch, time, height, width, channels], so that a convolution sees
the channels_last layout without a copy.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from config import CLIP_FRAMES, CLIP_LATENTS, PIXEL_MEAN, PIXEL_STD, WINDOW_LATENTS, VideoVaeConfig

NORM_GROUPS = 32
FRAMES_PER_LATENT = 4
# Decoded frames of a window that stand for real ones: the first latent of a chunk covers one frame.
HEAD = slice(3, 20)
TAIL = slice(23, 28)
FADE_FRAMES = 5


def group_statistics(x):
    """Mean and 1 / deviation of each frame's groups, repeated for their channels: [batch, time, channels]."""
    batch, time, height, width, channels = x.shape
    size = channels // NORM_GROUPS
    grouped = x.reshape(batch, time, height * width, NORM_GROUPS, size)
    mean = grouped.mean((2, 4), dtype=torch.float32)
    square = torch.linalg.vector_norm(grouped, dim=(2, 4), dtype=torch.float32).square()
    variance = (square / (height * width * size) - mean.square()).clamp(min=0)
    inverse = torch.rsqrt(variance + 1e-6)
    return mean.repeat_interleave(size, dim=-1), inverse.repeat_interleave(size, dim=-1)


def sum_of_groups(values):
    """[..., channels] -> each channel has its group's sum."""
    size = values.shape[-1] // NORM_GROUPS
    return values.unflatten(-1, (NORM_GROUPS, size)).sum(-1).repeat_interleave(size, dim=-1)


def per_frame(values, x):
    return values[:, :, None, None].to(x.dtype)


class Prepare(torch.autograd.Function):
    """What comes before a convolution, in as few passes over memory as eager code allows, for the encoder is
    bound by memory: GroupNorm (statistics of a frame each, float32) and SiLU where there is a norm; reflection
    by one at the right and the bottom and by `before` (0 or 1) at the left and the top; two zero frames in
    front; and the three taps in time side by side as channels.

    [batch, frames, height, width, channels] -> [batch, outputs, height + before + 1, width + before + 1,
    3 * channels]; `step` is the stride in time.
    """

    @staticmethod
    def taps(frames, step):
        """(tap, its first output with a real frame, that frame, outputs) of each tap."""
        outputs = (frames - 1) // step + 1
        for k in range(3):
            first = -(-(2 - k) // step)
            yield k, first, step * first + k - 2, outputs

    @staticmethod
    def forward(ctx, x, weight, bias, before, step):
        batch, time, height, width, channels = x.shape
        y, scale, shift, mean, inverse = x, None, None, None, None
        if weight is not None:
            mean, inverse = group_statistics(x)
            scale = inverse * weight
            shift = bias - mean * scale
            y = F.silu(torch.addcmul(per_frame(shift, x), x, per_frame(scale, x)), inplace=True)
        ctx.before, ctx.step = before, step
        ctx.save_for_backward(x, weight, scale, shift, mean, inverse)
        out = x.new_empty(batch, (time - 1) // step + 1, height + before + 1, width + before + 1, 3 * channels)
        inner = out[:, :, before:-1, before:-1]
        for k, first, frame, outputs in Prepare.taps(time, step):
            tap = inner[..., k * channels : (k + 1) * channels]
            tap[:, :first] = 0
            tap[:, first:] = y[:, frame : frame + step * (outputs - first - 1) + 1 : step]
        out[:, :, -1, before:-1] = out[:, :, -3, before:-1]
        if before:
            out[:, :, 0, 1:-1] = out[:, :, 2, 1:-1]
            out[:, :, :, 0] = out[:, :, :, 2]
        out[:, :, :, -1] = out[:, :, :, -3]
        return out

    @staticmethod
    def backward(ctx, gradient):
        x, weight, scale, shift, mean, inverse = ctx.saved_tensors
        before, step = ctx.before, ctx.step
        time, channels = x.shape[1], x.shape[4]
        g = gradient.new_zeros(gradient.shape[0], time, *gradient.shape[2:4], channels)
        for k, first, frame, outputs in Prepare.taps(time, step):
            part = gradient[:, first:, :, :, k * channels : (k + 1) * channels]
            g[:, frame : frame + step * (outputs - first - 1) + 1 : step] += part
        g[:, :, :, -3] += g[:, :, :, -1]
        if before:
            g[:, :, :, 2] += g[:, :, :, 0]
            g[:, :, 2] += g[:, :, 0]
        g[:, :, -3] += g[:, :, -1]
        g = g[:, :, before:-1, before:-1]
        if weight is None:
            return g.contiguous() if ctx.needs_input_grad[0] else None, None, None, None, None
        z = torch.addcmul(per_frame(shift, x), x, per_frame(scale, x))
        g = torch.ops.aten.silu_backward(g.contiguous(), z)
        of_shift = g.sum((2, 3), dtype=torch.float32)
        of_scale = z.copy_(g).mul_(x).sum((2, 3), dtype=torch.float32)
        of_weight = (of_scale - mean * of_shift) * inverse  # sum of g times the normalised x
        count = x.shape[2] * x.shape[3] * (channels // NORM_GROUPS)
        along = -inverse.square() * sum_of_groups(weight * of_weight) / count
        constant = -inverse * sum_of_groups(weight * of_shift) / count - mean * along
        of_x = torch.addcmul(per_frame(constant, x), x, per_frame(along, x)).addcmul_(g, per_frame(scale, x))
        return of_x, of_weight.sum((0, 1)), of_shift.sum((0, 1)), None, None


class Conv3d(nn.Conv3d):
    """A convolution of channels-last input.

    The taps in time become input channels of a 2D convolution, whose kernels are several times
    faster than the 3D ones at these widths.
    """

    def __init__(self, inputs, outputs, kernel=3, stride=1):
        super().__init__(inputs, outputs, kernel, stride)

    def forward(self, x, norm=None, before=1):
        """Pads by reflection (one at the end; `before` at the start) and two zero frames in front."""
        batch = x.shape[0]
        if self.kernel_size[0] == 1:
            x = x.flatten(0, 1)
        else:
            weight, bias = (None, None) if norm is None else (norm.weight, norm.bias)
            x = Prepare.apply(x, weight, bias, before, self.stride[0]).flatten(0, 1)
        weight = self.weight.transpose(1, 2).flatten(1, 2).contiguous(memory_format=torch.channels_last)
        y = F.conv2d(x.permute(0, 3, 1, 2), weight, self.bias, self.stride[1:])
        return y.permute(0, 2, 3, 1).unflatten(0, (batch, -1))


class GroupNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))


class ResnetBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.norm1, self.conv1 = GroupNorm(inputs), Conv3d(inputs, outputs)
        self.norm2, self.conv2 = GroupNorm(outputs), Conv3d(outputs, outputs)
        self.nin_shortcut = Conv3d(inputs, outputs, 1) if inputs != outputs else None

    def forward(self, x):
        y = self.conv2(self.conv1(x, self.norm1), self.norm2)
        return y + (x if self.nin_shortcut is None else self.nin_shortcut(x))


class Level(nn.Module):
    def __init__(self, inputs, outputs, blocks, stride):
        super().__init__()
        self.block = nn.ModuleList(
            ResnetBlock(inputs if j == 0 else outputs, outputs) for j in range(blocks)
        )
        self.downsample = None
        if stride != (1, 1, 1):
            self.downsample = nn.Module()
            self.downsample.conv = Conv3d(outputs, outputs, 3, stride)

    def forward(self, x):
        for block in self.block:
            x = block(x)
        return x if self.downsample is None else self.downsample.conv(x, before=0)


class Encoder(nn.Module):
    def __init__(self, config: VideoVaeConfig):
        super().__init__()
        widths = [config.channels * m for m in config.multipliers]
        self.conv_in = Conv3d(3, widths[0])
        self.down = nn.ModuleList()
        for i, width in enumerate(widths):
            stride = (config.time_down[i], config.space_down[i], config.space_down[i])
            self.down.append(Level(widths[max(i - 1, 0)], width, config.blocks_per_level, stride))
        self.norm_out = GroupNorm(widths[-1])
        self.conv_out = Conv3d(widths[-1], 2 * config.latent_channels)

    def forward(self, frames):
        x = self.conv_in(frames)
        for level in self.down:
            x = level(x)
        return self.conv_out(x, self.norm_out)


def rms_norm(x, weight=None, eps=1e-5):
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)
    return y if weight is None else y * weight


def decoder_rope(grid, config: VideoVaeConfig, device):
    """cos and sin [tokens, rotated / 2] of a (t, h, w) tile; suffix tokens sit at its centre."""
    per_axis = int(config.head_dim * config.rope_ratio) // 6
    inverse = config.rope_theta ** (-torch.arange(per_axis, device=device) / per_axis)
    axes = [2 * (torch.arange(n, device=device) + 0.5) / n - 1 for n in grid]
    positions = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, 3)
    suffix = torch.zeros(config.registers + 1, 3, device=device)
    positions = torch.cat([positions, suffix])
    angles = (2 * math.pi * positions[:, :, None] * inverse).flatten(1)
    return angles.cos(), angles.sin()


def rotate_halves(x, cos, sin):
    """Channel j pairs with j + half; channels beyond 2 * half pass through."""
    half = cos.shape[-1]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)


class DecoderAttention(nn.Module):
    def __init__(self, config: VideoVaeConfig):
        super().__init__()
        self.heads, self.head_dim = config.heads, config.head_dim
        self.to_qkv = nn.Linear(config.width, 3 * config.heads * config.head_dim)
        self.to_out = nn.Linear(config.heads * config.head_dim, config.width)

    def forward(self, x, cos, sin):
        batch, tokens, _ = x.shape
        # Rows are interleaved per head: [heads][q, k, v][head_dim].
        qkv = self.to_qkv(x).view(batch, tokens, self.heads, 3, self.head_dim)
        q, k, v = qkv.permute(3, 0, 2, 1, 4)
        q, k = (rotate_halves(rms_norm(part), cos, sin).to(v.dtype) for part in (q, k))
        return self.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class GatedFeedForward(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.w1, self.w2 = nn.Linear(width, 2 * hidden), nn.Linear(hidden, width)

    def forward(self, x):
        gate, up = self.w1(x).chunk(2, dim=-1)
        return self.w2(F.silu(gate) * up)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return rms_norm(x, self.weight)


class DecoderBlock(nn.Module):
    def __init__(self, config: VideoVaeConfig):
        super().__init__()
        self.norm1, self.norm2 = RmsNorm(config.width), RmsNorm(config.width)
        self.attn = DecoderAttention(config)
        self.ff = GatedFeedForward(config.width, config.ffn)
        self.scale1 = nn.Parameter(torch.full((config.width,), 0.5))
        self.scale2 = nn.Parameter(torch.full((config.width,), 0.5))

    def forward(self, x, cos, sin):
        x = x + self.attn(self.norm1(x), cos, sin) * self.scale1
        return x + self.ff(self.norm2(x)) * self.scale2


class Decoder(nn.Module):
    def __init__(self, config: VideoVaeConfig):
        super().__init__()
        self.config = config
        self.x_embedder = nn.Linear(config.latent_channels, config.width)
        self.register_tokens = nn.Parameter(0.02 * torch.randn(1, config.registers, config.width))
        self.transformer_blocks = nn.ModuleList(DecoderBlock(config) for _ in range(config.layers))
        self.norm_out = nn.LayerNorm(config.width, eps=1e-5)
        self.proj_out = nn.Linear(config.width, 3 * FRAMES_PER_LATENT * 16 * 16)

    def forward(self, z):
        batch, t, h, w, _ = z.shape
        x = self.x_embedder(z.reshape(batch, t * h * w, -1)).float()
        registers = self.register_tokens.expand(batch, -1, -1)
        x = torch.cat([x, registers, torch.zeros_like(registers[:, :1])], dim=1)
        cos, sin = decoder_rope((t, h, w), self.config, z.device)
        for block in self.transformer_blocks:
            x = block(x, cos, sin)
        x = self.proj_out(self.norm_out(x)[:, : t * h * w])
        x = x.view(batch, t, h, w, 3, FRAMES_PER_LATENT, 16, 16)
        return x.permute(0, 1, 5, 2, 6, 3, 7, 4).reshape(batch, t * FRAMES_PER_LATENT, h * 16, w * 16, 3)


class VideoVae(nn.Module):
    def __init__(self, config: VideoVaeConfig = VideoVaeConfig()):
        super().__init__()
        self.config = config
        self.encoder, self.decoder = Encoder(config), Decoder(config)
        self.quant_conv = Conv3d(2 * config.latent_channels, 2 * config.latent_channels, 1)
        self.post_quant_conv = Conv3d(config.latent_channels, config.latent_channels, 1)
        self.register_buffer("pixel_mean", torch.tensor(PIXEL_MEAN), persistent=False)
        self.register_buffer("pixel_std", torch.tensor(PIXEL_STD), persistent=False)

    def normalise_pixels(self, frames):
        return (frames - self.pixel_mean) / self.pixel_std

    def denormalise_pixels(self, frames):
        return (frames.float() * self.pixel_std + self.pixel_mean).clamp(0, 1)

    def encode_moments(self, frames):
        """Frames in [0, 1], 17n + 5 of them -> mean and log-variance [batch, 5n + 2, h, w, 24].

        Clips of 17 are encoded alone. The last clip holds five real frames; being causal, its two
        kept latents do not depend on the padding that would fill it up.
        """
        frames = self.normalise_pixels(frames)
        batch, count = frames.shape[:2]
        whole = count // CLIP_FRAMES
        clips = frames[:, : whole * CLIP_FRAMES].reshape(batch * whole, CLIP_FRAMES, *frames.shape[2:])
        body = self.quant_conv(self.encoder(clips))
        body = body.reshape(batch, whole * CLIP_LATENTS, *body.shape[2:])
        tail = self.quant_conv(self.encoder(frames[:, whole * CLIP_FRAMES :]))
        mean, log_variance = torch.cat([body, tail], dim=1).float().chunk(2, dim=-1)
        return mean, log_variance.clamp(-30, 20)

    def encode_picture_moments(self, pictures):
        """Single frames [batch, H, W, 3] in [0, 1] -> mean and log-variance [batch, 1, h, w, 24]; the same
        as those of the first latent of a clip that begins with this frame, as the encoder is causal."""
        moments = self.quant_conv(self.encoder(self.normalise_pixels(pictures[:, None])))
        mean, log_variance = moments.float().chunk(2, dim=-1)
        return mean, log_variance.clamp(-30, 20)

    def decode_window(self, z):
        """Seven latents -> 28 frames in normalised pixel space."""
        return self.decoder(self.post_quant_conv(z))

    def decode(self, z):
        """Latents [batch, 5n + 2, h, w, 24] -> frames in [0, 1] [batch, 17n + 5, 16h, 16w, 3]."""
        if z.shape[2] > 16 or z.shape[3] > 16:
            raise ValueError("frames above 256 pixels need spatial tiles, which this reference lacks")
        pieces, previous_tail = [], None
        for start in range(0, z.shape[1] - 2, CLIP_LATENTS):
            window = self.decode_window(z[:, start : start + WINDOW_LATENTS])
            head = window[:, HEAD].clone()
            if previous_tail is not None:
                ramp = torch.arange(FADE_FRAMES, device=z.device) / FADE_FRAMES
                ramp = ramp[:, None, None, None]
                head[:, :FADE_FRAMES] = previous_tail * (1 - ramp) + head[:, :FADE_FRAMES] * ramp
            pieces.append(head)
            previous_tail = window[:, TAIL]
        return self.denormalise_pixels(torch.cat([*pieces, previous_tail], dim=1))

