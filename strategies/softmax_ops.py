"""What every softmax that is merged from parts needs: sums wide enough, and queries that see no key."""

from __future__ import annotations

import math

import torch


def widened(x: torch.Tensor) -> torch.Tensor:
    """In float32 or wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def finite(lse: torch.Tensor) -> torch.Tensor:
    """0 in place of -inf, of a query that sees no key."""
    return torch.where(lse == -math.inf, 0.0, lse)
