"""The text encoder: the language half of a Qwen3-VL-shaped model.

Its output is the residual stream after the last used layer, without a final norm. The vision tower's
weights are made so that each token of any picture gets the one learned vector `picture_embedding` and
DeepStack adds nothing (see README.md); nothing here has to run it.
"""

import torch
import torch.nn.functional as F
from torch import nn

from config import TextConfig, VisionConfig
from tokenizer import EMBEDDING_ROWS
from video_vae import rms_norm, rotate_halves


class RmsNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return rms_norm(x, self.weight, self.eps)


class SelfAttention(nn.Module):
    def __init__(self, config: TextConfig):
        super().__init__()
        self.config = config
        inner, kv_inner = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden, inner, bias=False)
        self.k_proj = nn.Linear(config.hidden, kv_inner, bias=False)
        self.v_proj = nn.Linear(config.hidden, kv_inner, bias=False)
        self.o_proj = nn.Linear(inner, config.hidden, bias=False)
        self.q_norm = RmsNorm(config.head_dim, config.eps)
        self.k_norm = RmsNorm(config.head_dim, config.eps)

    def forward(self, x, cos, sin):
        split = (-1, self.config.head_dim)
        q, k, v = (p(x).unflatten(-1, split) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self.q_norm(q).transpose(1, 2), self.k_norm(k).transpose(1, 2)
        q, k = (rotate_halves(part, cos, sin).to(v.dtype) for part in (q, k))
        groups = self.config.heads // self.config.kv_heads
        k, v = (part.repeat_interleave(groups, dim=1) for part in (k, v.transpose(1, 2)))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, config: TextConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.ffn, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.ffn, bias=False)
        self.down_proj = nn.Linear(config.ffn, config.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config: TextConfig):
        super().__init__()
        self.input_layernorm = RmsNorm(config.hidden, config.eps)
        self.post_attention_layernorm = RmsNorm(config.hidden, config.eps)
        self.self_attn, self.mlp = SelfAttention(config), Mlp(config)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class TextEncoder(nn.Module):
    def __init__(self, config: TextConfig = TextConfig()):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(EMBEDDING_ROWS, config.hidden)
        self.picture_embedding = nn.Parameter(torch.randn(config.hidden))
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.used_layers))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)

    def rotary_axes(self, device):
        """Axis (0 time, 1 height, 2 width) of each frequency: they take turns, time takes the rest."""
        _, height, width = self.config.mrope_section
        axes = torch.arange(self.config.head_dim // 2, device=device) % 3
        axes[3 * min(height, width) :] = 0
        return axes

    def forward(self, ids, presented=None):
        """Ids [batch, tokens] -> [batch, tokens, hidden]. Causal, so padding at the end is inert.

        presented: a `keyframes.Presented` whose rows stand in front of every caption of the batch.
        """
        half = self.config.head_dim // 2
        inverse = self.config.rope_theta ** (-torch.arange(half, device=ids.device) / half)
        x = self.embed_tokens(ids)
        if presented is None:
            # All three positions of a token agree: M-RoPE is plain rotary embedding.
            angles = torch.arange(ids.shape[1], device=ids.device)[:, None] * inverse
        else:
            positions = presented.text_positions(ids.shape[1], ids.device)
            angles = positions[:, self.rotary_axes(ids.device)] * inverse
            pads = presented.pads
            picture = self.picture_embedding.expand(len(ids), pads.stop - pads.start, -1)
            x = torch.cat([x[:, : pads.start], picture, x[:, pads.stop :]], dim=1)
        for layer in self.layers:
            x = layer(x, angles.cos(), angles.sin())
        return x


def vision_tower(config: VisionConfig, picture_embedding, generator: torch.Generator) -> dict:
    """Weights of a vision tower whose every token is `picture_embedding` [hidden]: random up to the last
    matrix of each merger, which is zero. A run of it costs what a trained one would."""
    tensors = {}

    def linear(name, outputs, inputs):
        weight = torch.randn(outputs, inputs, generator=generator) * inputs**-0.5
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = weight, torch.zeros(outputs)

    def norm(name, width):
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = torch.ones(width), torch.zeros(width)

    hidden, merged = config.hidden, config.hidden * config.merge**2
    pixels = 3 * config.temporal_patch * config.patch**2
    linear("patch_embed.proj", hidden, pixels)
    shape = (hidden, 3, config.temporal_patch, config.patch, config.patch)
    tensors["patch_embed.proj.weight"] = tensors["patch_embed.proj.weight"].view(shape)
    tensors["pos_embed.weight"] = 0.02 * torch.randn(config.positions, hidden, generator=generator)
    for i in range(config.depth):
        norm(f"blocks.{i}.norm1", hidden)
        norm(f"blocks.{i}.norm2", hidden)
        linear(f"blocks.{i}.attn.qkv", 3 * hidden, hidden)
        linear(f"blocks.{i}.attn.proj", hidden, hidden)
        linear(f"blocks.{i}.mlp.linear_fc1", config.ffn, hidden)
        linear(f"blocks.{i}.mlp.linear_fc2", hidden, config.ffn)
    mergers = ["merger"] + [f"deepstack_merger_list.{j}" for j in range(len(config.deepstack))]
    for name in mergers:
        norm(f"{name}.norm", hidden if name == "merger" else merged)
        linear(f"{name}.linear_fc1", merged, merged)
        tensors[f"{name}.linear_fc2.weight"] = torch.zeros(len(picture_embedding), merged)
        tensors[f"{name}.linear_fc2.bias"] = torch.zeros(len(picture_embedding))
    tensors["merger.linear_fc2.bias"] = picture_embedding.clone()
    return tensors
