"""How far from the mean some rank must be, whoever has what: whole blocks and whole tokens cannot be cut further.

L tokens of a sequence in n blocks of K, V views beside one clean copy, P ranks in rings of C. What is
proven here is for block numbers as equal as they can be, which rows as equal as they can be ask for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from meshlang_strategies.block_layout import seen_before

#: Blocks in sight of a window's edge up to which every way to deal them out is looked at.
FEW = 8


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One way to cut a sequence."""

    blocks: int
    size: int
    ranks: int
    context: int
    views: int
    window: int | None

    @property
    def rings(self) -> int:
        """P / C."""
        return self.ranks // self.context

    @property
    def tokens(self) -> int:
        """L."""
        return self.blocks * self.size

    @cached_property
    def seen(self) -> list[int]:
        """Keys of each token."""
        ends = [seen_before(stop, self.size, self.window) for stop in range(self.tokens + 1)]
        return [after - before for before, after in pairwise(ends)]

    @cached_property
    def weights(self) -> list[int]:
        """Pairs of all views of each block."""
        return [self.views * sum(self.seen[k * self.size : (k + 1) * self.size]) for k in range(self.blocks)]

    def counts(self) -> list[int]:
        """Blocks of each ring."""
        each, more = divmod(self.blocks, self.rings)
        return [each + (ring < more) for ring in range(self.rings)]

    def rows(self, ring: int) -> list[int]:
        """Rows of each rank of a ring with so many blocks."""
        each, more = divmod(self.views * ring * self.size + self.tokens, self.context)
        return [each + (rank < more) for rank in range(self.context)]

    @property
    def mean(self) -> float:
        """Pairs of a rank."""
        return (sum(self.weights) + self.rings * sum(self.seen)) / self.ranks


def rows_bound(shape: Shape) -> float:
    """A ring has whole blocks, a rank whole rows."""
    rows = [count for ring in shape.counts() for count in shape.rows(ring)]
    mean = sum(rows) / len(rows)
    return max(abs(count - mean) for count in rows) / mean


def pairs_bound(shape: Shape) -> float:
    """The largest of the bounds below; the last of them is for clean tokens that are not picked one by one."""
    found = [abs(sum(shape.seen) + total - shape.context * shape.mean) / shape.context for total in _rings(shape)]
    if shape.context > 1 and shape.rings == 1:
        found += _ranks(shape)
    return max(found, default=0.0) / shape.mean


def _rings(shape: Shape) -> Iterator[float]:
    """The blocks' pairs of a ring that is above or below the mean, whatever blocks the rings have.

    Rings with one block more have together at least the lightest blocks, and the others at most the heaviest. Where
    few blocks differ from the rest, as with a window, all ways to deal them out are looked at.
    """
    ordered, counts = sorted(shape.weights), shape.counts()
    mean = sum(ordered) / len(counts)
    large, small = counts.count(max(counts)), counts.count(min(counts))
    if large < len(counts):
        yield max(mean, sum(ordered[: max(counts) * large]) / large)
        yield min(mean, sum(ordered[-min(counts) * small :]) / small)
    light = [weight for weight in ordered if weight < ordered[-1]]
    if len(counts) > 1 and len(light) <= FEW:
        yield mean + _least(light, counts, ordered[-1], mean)


def _least(light: list[int], counts: list[int], heavy: int, mean: float) -> float:
    """The farthest ring's distance from the mean in the best of all ways to deal out these blocks among others."""
    states = {tuple(sorted((count, 0) for count in counts))}
    for weight in light:
        states = {
            tuple(sorted((*state[:ring], (state[ring][0] - 1, state[ring][1] + weight), *state[ring + 1 :])))
            for state in states
            for ring in range(len(state))
            if state[ring][0] and (ring == 0 or state[ring] != state[ring - 1])
        }
    return min(max(abs(left * heavy + got - mean) for left, got in state) for state in states)


def _ranks(shape: Shape) -> Iterator[float]:
    """How far above or below the mean a rank of the only ring is."""
    rows, top = shape.rows(shape.blocks), max(shape.seen)
    lacks = sorted([shape.views * shape.size * top - w for w in shape.weights] + [top - s for s in shape.seen])[::-1]
    yield (
        max(rows) * top
        - min(sum(lacks[taken:]) / (rows.count(max(rows)) - taken) for taken in range(rows.count(max(rows))))
        - shape.mean
    )  # of so many ranks some have none of the `taken` largest lacks, and the least has a part of the rest
    first, most = shape.weights[0], sorted(shape.weights[1:], reverse=True)
    each, width = shape.blocks // shape.ranks, shape.views * shape.size
    owner = [
        first + sum(most[: count - 1]) + (max(rows) - width * count) * most[0] / width for count in (each, each + 1)
    ]
    yield shape.mean - max(owner)  # whoever has the first block, its clean tokens those of whole blocks
