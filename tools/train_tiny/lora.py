"""Low-rank adapters on the linear layers of the transformer's blocks."""

import torch
import torch.nn.functional as F
from torch import nn

from dit import Dit

RANK = 16
TARGETS = ("attn.qkv_proj", "attn.out_proj", "mlp.fc1", "mlp.fc2")


class LoraLinear(nn.Linear):
    """y = (W + B A) x. A qkv projection holds three pairs, one each for q, k and v."""

    def __init__(self, base: nn.Linear, heads: int = 0):
        """`heads` above 0: rows are [heads][q, k, v][head_dim]."""
        super().__init__(base.in_features, base.out_features, bias=False)
        self.weight, self.heads = base.weight, heads
        pairs = 3 if heads else 1
        inputs, outputs = base.in_features, base.out_features // pairs
        self.lora_A = nn.Parameter(torch.randn(pairs, RANK, inputs) * inputs**-0.5)
        self.lora_B = nn.Parameter(torch.zeros(pairs, outputs, RANK))

    def delta(self):
        delta = self.lora_B @ self.lora_A  # [pairs, outputs, inputs]
        if not self.heads:
            return delta[0]
        return delta.unflatten(1, (self.heads, -1)).transpose(0, 1).flatten(0, 2)

    def forward(self, x):
        return F.linear(x, self.weight + self.delta())


def add_lora(dit: Dit) -> None:
    """Puts adapters that change nothing yet into every block; only they will be trained."""
    dit.requires_grad_(False)
    for block in dit.blocks:
        for target in TARGETS:
            parent, name = target.split(".")
            owner = getattr(block, parent)
            heads = dit.config.heads if name == "qkv_proj" else 0
            setattr(owner, name, LoraLinear(getattr(owner, name), heads))


def lora_parameters(dit: Dit) -> dict:
    return {name: p for name, p in dit.named_parameters() if "lora_" in name}
