"""The backward of one stage for one subsequence: whole, or of its input first and of its weights later."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight


@dataclass(kw_only=True)
class Live:
    """What a forward left for its backward: the graph between what came in and what went out."""

    value: torch.Tensor | None
    output: torch.Tensor
    groups: list[dict[str, Any]] = field(default_factory=list)


def whole(live: Live, grad: torch.Tensor | None) -> torch.Tensor | None:
    """All gradients; that of the stage's input is given back. A loss needs no gradient of its own."""
    torch.autograd.backward(live.output, grad)
    return taken(live.value)


def of_input(live: Live, grad: torch.Tensor | None, weights: Iterable[torch.nn.Parameter]) -> torch.Tensor | None:
    """The gradient of the input; what is left for `of_weights` stays with `live`.

    The first stage has no input to find a gradient of, so it does all here: what subsequences
    hand to each other goes against their order, and `of_weights` may come in any.
    """
    if live.value is None:
        return whole(live, grad)
    _, live.groups = stage_backward_input([live.output], None if grad is None else [grad], [live.value], iter(weights))
    return taken(live.value)


def of_weights(live: Live, weights: Iterable[torch.nn.Parameter]) -> None:
    """The gradients of the weights, added to what is there."""
    if live.groups:
        stage_backward_weight(iter(list(weights)), live.groups)
        live.groups = []


def taken(value: torch.Tensor | None) -> torch.Tensor | None:
    """The gradient of a leaf, which then holds it no more."""
    if value is None:
        return None
    grad, value.grad = value.grad, None
    assert grad is not None, "the stage gives no gradient of its input"
    return grad
