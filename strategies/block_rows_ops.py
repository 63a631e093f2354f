"""Which rows a rank has of a batch of whole sequences, and which keys each of them sees.

Shapes: B sequences, L tokens of a sequence, V corrupted views; the rows of a rank are its corrupted
ones view by view, then its clean ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from meshlang.lowering.errors import LoweringError
from meshlang.plan.blocks import Runs

from .block_kernels_ops import Seen
from .block_layout import Streams

Batch = dict[str, Any]


def viewed(batch: Batch, views: int, *, shared: bool) -> Batch:
    """The batch with all views of a sequence beside one clean copy, or each beside its own."""
    beside = batch["input"].size(1) // batch["clean"].size(1)
    if beside == (views if shared else 1):
        return batch
    if beside not in (1, views):
        raise LoweringError([f"{beside} views stand beside a clean copy here, in the plan {views} or one"])

    def turned(name: str, x: torch.Tensor) -> torch.Tensor:
        if shared:  # (B V, L) -> (B, V L); of clean copies that are the same the first
            return x[::views] if name.startswith("clean") else x.reshape(-1, views * x.size(1))
        return x.repeat_interleave(views, 0) if name.startswith("clean") else x.reshape(-1, x.size(1) // views)

    return batch | {name: turned(name, x) for name, x in batch.items() if isinstance(x, torch.Tensor)}


@dataclass(frozen=True, kw_only=True)
class Rows:
    """This rank's rows, and what each sees: goes through the model in place of a mask.

    Attributes:
        corrupted: tokens of one view, in order. clean: clean tokens.
        own: for corrupted rows the run of corrupted tokens seen, clean_seen: for all rows that of clean ones,
            in tokens of the sequence, (B or 1, rows).
        cuts: rows at which a run of neighbouring tokens begins.
        parts: what has been made of this for the kernels.
    """

    views: int
    block_size: int
    corrupted: torch.Tensor
    clean: torch.Tensor
    tokens: int
    own: tuple[torch.Tensor, torch.Tensor]
    clean_seen: tuple[torch.Tensor, torch.Tensor]
    cuts: tuple[int, ...]
    parts: dict[object, Seen] = field(default_factory=dict)

    @classmethod
    def of(cls, streams: Streams, rank: int, positions: torch.Tensor, views: int) -> Rows:
        """The rows of a rank; documents begin where a position of the clean tokens (B, L) is 0."""
        device, size = positions.device, streams.block_size
        corrupted, clean = (_tokens(runs, device) for runs in (streams.corrupted[rank], streams.clean[rank]))
        first, last = documents(positions)
        rows = torch.cat([corrupted.repeat(views), clean])
        low = first[:, rows]
        if streams.window is not None:
            low = torch.maximum(low, rows - streams.window + 1)
        block = rows // size * size
        end = torch.minimum(last[:, rows], block + size)
        count = views * len(corrupted)
        high = torch.cat([block[None, :count].expand(len(low), -1), end[:, count:]], dim=1)
        lengths = [b - a for runs in (*[streams.corrupted[rank]] * views, streams.clean[rank]) for a, b in runs]
        cuts = tuple(sum(lengths[:index]) for index in range(len(lengths)))
        return cls(
            views=views,
            block_size=size,
            corrupted=corrupted,
            clean=clean,
            tokens=streams.tokens,
            own=(torch.maximum(low, block)[:, :count], end[:, :count]),
            clean_seen=(low, high),
            cuts=cuts,
        )

    @property
    def count(self) -> int:
        """Corrupted rows of all views."""
        return self.views * len(self.corrupted)

    def corrupted_places(self) -> torch.Tensor:
        """Where the corrupted rows stand in the views of a whole sequence, one view after another."""
        starts = torch.arange(self.views, device=self.corrupted.device) * self.tokens
        return (starts[:, None] + self.corrupted).flatten()

    def in_blocks(self, batch: int) -> Seen:
        """What each corrupted row sees of its own block, whose tokens are keys 0 ... K - 1: blocks are sequences."""
        return self._made(("blocks", batch), lambda: self._blocks(batch))

    def _blocks(self, batch: int) -> Seen:
        start = self.corrupted.repeat(self.views) // self.block_size * self.block_size
        low, high = (x - start for x in self.own)
        low, high = (x.unflatten(1, (-1, self.block_size)) for x in (low, high))
        if len(low) == 1 and bool((low == 0).all()) and bool((high == self.block_size).all()):
            return Seen(low=low[0, :1], high=high[0, :1])
        low, high = (x.expand(batch, -1, -1).flatten(0, 1) for x in (low, high))
        return Seen(low=low, high=high)

    def in_rows(self) -> Seen:
        """What each corrupted row sees of the corrupted rows."""
        return self._made("rows", self._own_rows)

    def _own_rows(self) -> Seen:
        rows = torch.arange(self.count, device=self.corrupted.device)
        shift = rows - self.corrupted.repeat(self.views)
        low, high = (x + shift for x in self.own)
        return Seen(low=low, high=high, cuts=tuple(cut for cut in self.cuts if cut < self.count))

    def in_clean(self, runs: Runs) -> Seen:
        """What each row sees of clean keys that are these runs, one after another."""
        return self._made(runs, lambda: self._clean(runs))

    def _clean(self, runs: Runs) -> Seen:
        low, high = (sum((x - a).clamp(0, b - a) for a, b in runs) for x in self.clean_seen)
        assert isinstance(low, torch.Tensor)
        assert isinstance(high, torch.Tensor)
        return Seen(low=low, high=torch.maximum(low, high), cuts=self.cuts)

    def _made(self, key: object, make: Callable[[], Seen]) -> Seen:
        if key not in self.parts:
            self.parts[key] = make()
        return self.parts[key]


def _tokens(runs: Runs, device: torch.device) -> torch.Tensor:
    parts = [torch.arange(start, stop, device=device) for start, stop in runs]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64, device=device)


def documents(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For each token the first of its document and the one past its last: (B, L), or (1, L) where there is one each."""
    count = positions.size(1)
    index = torch.arange(count, device=positions.device).expand_as(positions)
    starts = positions == 0
    if not bool(starts[:, 1:].any()):
        return torch.zeros_like(index[:1]), torch.full_like(index[:1], count)
    first = torch.where(starts, index, 0).cummax(1).values
    after = torch.where(starts, index, count).flip(1).cummin(1).values.flip(1)
    return first, torch.cat([after[:, 1:], torch.full_like(after[:, :1], count)], dim=1)
