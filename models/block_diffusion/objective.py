"""What a sample becomes: corrupted views of it, and labels that say what each row is scored on.

* `masked` is block diffusion as BD3-LM has it (arXiv 2503.09573, section 3): one view; a row
  predicts its own token; a corrupted row counts 1 / t; the loss is divided by the number of
  eligible tokens, corrupted or not.
* `complementary` is Fast-dLLM v2 (arXiv 2509.26328, section 3): two views, the second with those
  tokens corrupted that the first shows; row i predicts token i + 1; every row counts 1. Over both
  views each token that has one before it in its document is scored exactly once.

torchtitan's loss gets the labels and nothing else, on every path, and divides by how many of them
are not IGNORE_INDEX. So a label carries its weight: the token in the lower 32 bits, the weight, a
float32, in the upper. What is done to rows is then done to one tensor.

Shapes: T tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torchtitan.components.loss import IGNORE_INDEX

from .corrupt import Noise

_TOKEN_BITS = 32


@dataclass(frozen=True, kw_only=True)
class View:
    """One corrupted copy of a sample: each (T,), int64."""

    tokens: torch.Tensor
    labels: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A sequence to be corrupted: each (T,).

    Attributes:
        clean: its tokens.
        eligible: which of them may be corrupted.
        document: a number for each document.
    """

    clean: torch.Tensor
    eligible: torch.Tensor
    document: torch.Tensor


Objective = Callable[[Sample, Noise, int], tuple[View, ...]]
"""(sample, noise, id of the mask token) -> the sample's views."""


def masked(sample: Sample, noise: Noise, mask_id: int) -> tuple[View, ...]:
    """One view; labels at every eligible row, of weight 0 where the token is shown."""
    hidden = noise.corrupted & sample.eligible
    weights = torch.where(hidden, 1 / noise.level, 0.0)
    labels = encode(sample.clean, weights.to(torch.float32))
    return (
        View(
            tokens=torch.where(hidden, mask_id, sample.clean),
            labels=torch.where(sample.eligible, labels, IGNORE_INDEX),
        ),
    )


def complementary(sample: Sample, noise: Noise, mask_id: int) -> tuple[View, ...]:
    """Two views; labels at the rows before a corrupted token of the same document."""
    last = torch.zeros(1, dtype=torch.bool)
    valid = torch.cat([(sample.document[1:] == sample.document[:-1]) & sample.eligible[1:], last])
    after = sample.clean.roll(-1)
    labels = encode(after, torch.ones(len(after)))
    views = []
    for corrupted in (noise.corrupted, ~noise.corrupted):
        hidden = corrupted & sample.eligible
        scored = valid & hidden.roll(-1)
        tokens = torch.where(hidden, mask_id, sample.clean)
        views.append(View(tokens=tokens, labels=torch.where(scored, labels, IGNORE_INDEX)))
    return tuple(views)


#: How many views each makes, and how.
OBJECTIVES: dict[str, tuple[int, Objective]] = {"masked": (1, masked), "complementary": (2, complementary)}


def encode(tokens: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Labels of these tokens, int64, and weights, float32 and not negative."""
    return tokens | (weights.view(torch.int32).to(torch.int64) << _TOKEN_BITS)


def decode(labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(tokens, weights) of labels; of IGNORE_INDEX (IGNORE_INDEX, 0)."""
    ignored = labels == IGNORE_INDEX
    tokens = torch.where(ignored, IGNORE_INDEX, labels & ((1 << _TOKEN_BITS) - 1))
    weights = (labels >> _TOKEN_BITS).to(torch.int32).view(torch.float32)
    return tokens, torch.where(ignored, 0.0, weights)
