"""A module as a stage that the executor runs, one subsequence at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from ..pipeline.ir import Op
from .carry import Carrying, Now, Piece
from .execute import StagePart
from .messages import Message
from .store import sum_at_last, sum_now


@dataclass(frozen=True, kw_only=True)
class Feed:
    """The data of one sequence of the Program, which may be several of the batch: (B, T) each.

    Attributes:
        more: further arguments of the model; tensors are cut in subsequences, all else is for all.
    """

    tokens: torch.Tensor | None
    labels: torch.Tensor | None
    more: Mapping[str, Any]


def even(tokens: int, count: int) -> tuple[int, ...]:
    """The lengths of `count` subsequences that differ by one at most, longer ones first."""
    return tuple(tokens // count + (index < tokens % count) for index in range(count))


@dataclass(kw_only=True)
class ModulePart(StagePart):
    """A module that takes (B, T) tokens or what another gave, and its loss where it is the last.

    Args:
        feeds: the data of the step's sequences.
        lengths: tokens of each subsequence.
        shape: (kind of message, tokens) -> its shape: F is what comes in, B the gradient of what goes out.
        loss: (output, labels) -> a sum, where the module is the last stage.
        synced: called when the gradients of a step are whole on the axes of this rank.
    """

    module: nn.Module
    now: Now
    feeds: dict[int, Feed]
    lengths: Sequence[int]
    shape: Callable[[str, int], tuple[int, ...]]
    dtype: torch.dtype
    device: torch.device
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None
    carrying: tuple[Carrying, ...] = ()
    synced: Callable[[], None] | None = None
    train: bool = True
    pieces: tuple[tuple[int, int], ...] = field(init=False)

    def __post_init__(self) -> None:
        self.pieces = tuple(pairwise(accumulate(self.lengths, initial=0)))

    def piece(self, op: Op) -> Piece:
        """Which tokens an operation is about."""
        start, stop = self.pieces[op.subsequence]
        return Piece(op.sequence, op.subsequence, len(self.lengths), start, stop, self.pieces[-1][1])

    def forward(self, op: Op, value: torch.Tensor | None) -> torch.Tensor:
        """See StagePart."""
        feed, (start, stop) = self.feeds[op.sequence], self.pieces[op.subsequence]
        if value is None:
            assert feed.tokens is not None
            value = feed.tokens[:, start:stop]
        more = {k: v[:, start:stop] if isinstance(v, torch.Tensor) else v for k, v in feed.more.items()}
        output = self.module(value, **more)
        if self.loss is None:
            return output
        assert feed.labels is not None
        return self.loss(output, feed.labels[:, start:stop])

    def parameters(self) -> Iterable[nn.Parameter]:
        """See StagePart."""
        return self.module.parameters()

    def buffer(self, message: Message) -> torch.Tensor:
        """See StagePart."""
        shape = self.shape(message.kind, self.lengths[message.subsequence])
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def before(self, op: Op) -> None:
        """See StagePart."""
        self.now.piece = self.piece(op)
        if op.kind != "F" and isinstance(self.module, FSDPModule):
            sum_at_last(self.module)

    def after(self, op: Op) -> None:
        """See StagePart."""
        if op.kind in ("B", "W") or not self.train:
            for each in self.carrying:
                each.store.done(self.piece(op))
        self.now.piece = None

    def finished(self) -> None:
        """See StagePart."""
        for each in self.carrying:
            assert not each.store.kept, f"{len(each.store.kept)} sequences were left in a store of keys"
        if self.train and isinstance(self.module, FSDPModule):
            sum_now(self.module)
        if self.train and self.synced is not None:
            self.synced()
