"""Models that the card tests build on the meta device, and how to build them."""

from __future__ import annotations

from pathlib import Path

import torch
from meshlang_models import block_diffusion, llama
from torch import nn
from torchtitan.models.llama3 import llama3_configs
from torchtitan.models.qwen3 import qwen3_configs

#: Of the repository.
ROOT = Path(__file__).parents[2]

LLAMA3 = ("debugmodel", "1B", "3B", "8B", "70B", "405B")
LLAMA = ("tiny", "debug", "deep")
QWEN3 = ("debugmodel", "0.6B", "1.7B", "4B", "8B", "14B", "32B")
BLOCK_DIFFUSION = ("tiny", "debug", "tiny_complementary", "tiny_shared", "1B", "8B")
TITAN = {"llama3": llama3_configs, "qwen3": qwen3_configs}
OURS = {"llama": llama.model_registry, "block_diffusion": block_diffusion.model_registry}


def built(card: str, flavor: str) -> nn.Module:
    """The real model that a flavor of one of our cards describes."""
    config = TITAN[card][flavor](attn_backend="flex") if card in TITAN else OURS[card](flavor).model
    with torch.device("meta"):
        return config.build()


class EncoderLayer(nn.Module):
    """A layer as torch's nn.TransformerEncoderLayer has it, over the last of three dims."""

    def __init__(self, width: int = 64, heads: int = 4, inner: int = 128) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.linear1 = nn.Linear(width, inner)
        self.linear2 = nn.Linear(inner, width)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, src: torch.Tensor) -> torch.Tensor:
        """The layer's output, of its input's shape."""
        src = self.norm1(src + self.self_attn(src, src, src)[0])
        return self.norm2(src + self.linear2(self.linear1(src).relu()))


class Attention(nn.Module):
    """Causal attention with one projection for queries, keys and values, and a mask as a buffer."""

    def __init__(self, width: int, heads: int, positions: int) -> None:
        super().__init__()
        self.n_head = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.register_buffer("causal", torch.ones(positions, positions, dtype=torch.bool).tril(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The attended values, of the input's shape."""
        q, k, v = (part.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=-1))
        return self.c_proj(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Norm and attention, norm and a feed-forward with biases."""

    def __init__(self, width: int, heads: int, positions: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, positions)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's output, of its input's shape."""
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """Learned positions, layers, and a head that is the embedding."""

    def __init__(self, width: int = 48, heads: int = 4, layers: int = 3, vocab: int = 100, positions: int = 32) -> None:
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(positions, width)
        self.h = nn.ModuleList(Layer(width, heads, positions) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """A score for each token of the vocabulary."""
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for layer in self.h:
            x = layer(x)
        return self.lm_head(self.ln_f(x))


class Nested(nn.Module):
    """Lists in lists, of equal and of unequal lengths, and two lists of one name."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.ModuleList(nn.Linear(8, 16) for _ in range(2)) for _ in range(3))
        self.stairs = nn.ModuleList(nn.ModuleList(nn.Linear(8, 8) for _ in range(i + 1)) for i in range(3))
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList(nn.Linear(8, 8) for _ in range(4))})
        self.decoder = nn.ModuleDict({"layers": nn.ModuleList(nn.Linear(8, 8) for _ in range(2))})
        self.seq = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Its input."""
        return x


class Holding(nn.Module):
    """Holds a parameter itself, beside modules with their own, and a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 8))
        self.scale = nn.Parameter(torch.ones(()))
        self.norm = nn.BatchNorm1d(8)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, *inputs: torch.Tensor, **options: float) -> None:
        """Nothing."""


def empty() -> nn.Module:
    """A module without anything."""
    return nn.Identity()


def conv() -> nn.Module:
    """Convolutions and group norms."""
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU()))


def shared() -> nn.Module:
    """One linear module under three names."""
    linear = nn.Linear(8, 8)
    return nn.ModuleDict({"a": linear, "b": linear, "c": linear})
