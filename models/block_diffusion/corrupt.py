"""Noise: how much of each block is corrupted, and which of its tokens.

The noise of a sample is a function of a seed and of the sample's number over all ranks and steps,
and of nothing else. Each sample is used in one step, so step k has the same noise on every mesh,
for every split into microbatches, and after a resume.

Shapes: T tokens of a sequence, K tokens of a block, n = T / K blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import torch

#: The lowest noise level: a block's loss is weighted by 1 / t.
LOWEST = 1e-3


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What is drawn for one sample, in float64.

    Attributes:
        level: (T,), the noise level of each token's block.
        uniform: (T,), in [0, 1); a token is corrupted where it is below the level.
    """

    level: torch.Tensor
    uniform: torch.Tensor

    @property
    def corrupted(self) -> torch.Tensor:
        """(T,), which tokens are corrupted."""
        return self.uniform < self.level


def sample_seed(base: int, sample: int) -> int:
    """The seed of one sample's noise, of 63 bits."""
    digest = blake2b(f"{base} {sample}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def antithetic_levels(start: float, blocks: int) -> torch.Tensor:
    """The noise level of each of a sample's blocks: ((start + i / n) mod 1), scaled to [LOWEST, 1]: (n,).

    Every level is uniform where `start` is, and together they are spread evenly, which makes the
    variance of the loss small (the low-discrepancy sampler of arXiv 2107.00630, there over a batch).
    Spread over a sample's own blocks, they ask for no other sample, which may be on another rank.
    """
    spread = (start + torch.arange(blocks, dtype=torch.float64) / blocks) % 1
    return LOWEST + (1 - LOWEST) * spread


def draw(seed: int, length: int, block_size: int) -> Noise:
    """The noise of a sample of `length` tokens.

    Raises:
        ValueError: the blocks do not come out even.
    """
    if length % block_size:
        raise ValueError(f"{length} tokens do not divide into blocks of {block_size}")
    generator = torch.Generator().manual_seed(seed)
    start = torch.rand((), generator=generator, dtype=torch.float64)
    uniform = torch.rand(length, generator=generator, dtype=torch.float64)
    levels = antithetic_levels(float(start), length // block_size)
    return Noise(level=levels.repeat_interleave(block_size), uniform=uniform)
