"""Which blocks and clean tokens each rank of an axis has, and what attention costs it. Knows no torch.

L tokens of a sequence, K of a block, n = L / K blocks, P ranks of the axis, of which C share one
clean stream, W tokens of a sliding window. Runs are (first, past the last). Nothing here walks
over tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import inf

from meshlang.plan.blocks import Runs, joined

from .block_balance import NEAR, Held, Seen, exchanged, length, nested, weight

Owners = tuple[Runs, ...]

#: How far from the mean head and tail may leave a rank's pairs, as a share of it: other owners send more to each other.
LEFT = 0.02

#: Ranks up to which other owners than head and tail are looked for: the search grows with them, and a check is short.
MOST = 256


def deal(blocks: int, ranks: int, context: int) -> Owners:
    """Whole blocks to ranks: the numbers of blocks differ by one at most, and so does their weight from the mean.

    Block k has weight k + 1, so k and n - 1 - k together weigh the same for each k. Rank r takes
    part r of the first and the last blocks, head and tail; where n divides by 2P that is all. Of the
    fewer than 2P blocks left in the middle each rank takes two that lie opposite, or one.
    """
    each, left = divmod(blocks, 2 * ranks)
    low, high = each * ranks, blocks - each * ranks
    twos = max(0, left - ranks)
    extra = [[(low + i, low + i + 1), (high - 1 - i, high - i)] for i in range(twos)]
    extra += [[(block, block + 1)] for block in range(low + twos, high - twos)]
    extra += [[] for _ in range(ranks - len(extra))]
    rings = sorted(range(ranks), key=lambda rank: (rank % context, rank // context))
    middle = dict(zip(rings, extra, strict=True))
    return tuple(
        joined([(r * each, (r + 1) * each), *middle[r], (blocks - (r + 1) * each, blocks - r * each)])
        for r in range(ranks)
    )


def share_out(tokens: int, used: Sequence[int]) -> tuple[int, ...]:
    """Clean tokens for each rank of a ring, so that all have as many rows with what they have already."""
    order = sorted(range(len(used)), key=lambda rank: used[rank])
    taking = len(order)
    while tokens + sum(used[rank] for rank in order[:taking]) < used[order[taking - 1]] * taking:
        taking -= 1
    level, over = divmod(tokens + sum(used[rank] for rank in order[:taking]), taking)
    counts = [0] * len(used)
    for place, rank in enumerate(order[:taking]):
        counts[rank] = level - used[rank] + (place < over)
    return tuple(counts)


def seen_before(stop: int, block_size: int, window: int | None) -> int:
    """Pairs of all queries at 0 ... stop - 1 of a stream."""
    whole, part = divmod(stop, block_size)
    ends = block_size * (block_size * whole * (whole + 1) // 2 + part * (whole + 1))
    late = max(0, stop - window) if window is not None else 0
    return ends - late * (late + 1) // 2


@dataclass(frozen=True, kw_only=True)
class Streams:
    """Where the tokens of both streams are."""

    tokens: int
    block_size: int
    context: int
    window: int | None
    corrupted: Owners
    clean: Owners

    @property
    def ranks(self) -> int:
        """Of the axis."""
        return len(self.corrupted)

    @property
    def padded(self) -> int:
        """Clean tokens of the rank that has the most: what each sends when all send alike."""
        return max(map(length, self.clean))

    def rows(self, views: int, towers: int) -> tuple[int, ...]:
        """Of each rank, for one sequence with so many corrupted copies and so many clean ones."""
        both = zip(self.corrupted, self.clean, strict=True)
        return tuple(views * length(corrupted) + towers * length(clean) for corrupted, clean in both)

    def pairs(self, views: int, towers: int) -> tuple[int, ...]:
        """Of each rank, in one layer, for one sequence with so many corrupted copies and so many clean ones.

        A token at i sees from its window's first token to the end of its block: of the corrupted
        stream the tokens of its block, of the clean stream those before, or for a clean query all.
        """
        both = zip(self.corrupted, self.clean, strict=True)
        return tuple(views * self._seen(corrupted) + towers * self._seen(clean) for corrupted, clean in both)

    def off(self, views: int) -> float:
        """How far a rank's pairs are from the mean at most, as a share of it, with views beside one clean copy."""
        pairs = self.pairs(views, 1)
        mean = sum(pairs) / len(pairs)
        return max(abs(each - mean) for each in pairs) / mean

    def _seen(self, runs: Runs) -> int:
        return weight(runs, lambda stop: seen_before(stop, self.block_size, self.window))

    def ring_of(self, rank: int) -> range:
        """The ranks that share a clean stream with this one, itself among them."""
        first = rank // self.context * self.context
        return range(first, first + self.context)

    def needed(self, rank: int) -> Runs:
        """Clean tokens that the queries of a rank look at, its own too."""
        size, window = self.block_size, self.window
        found: list[tuple[int, int]] = []
        for start, stop in self.corrupted[rank]:
            found.append((start if window is None else max(0, start - window + 1), (stop - 1) // size * size))
        for start, stop in self.clean[rank]:
            found.append((start if window is None else max(0, start - window + 1), ((stop - 1) // size + 1) * size))
        runs = [(0, stop) for _, stop in found] if window is None else found
        return joined(sorted(runs))

    def moves(self) -> Mapping[tuple[int, int], Runs]:
        """(from, to) -> the clean tokens that one rank sends another so that each has those it needs."""
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for first in range(0, self.ranks, self.context):
            owned = sorted((run, rank) for rank in self.ring_of(first) for run in self.clean[rank])
            starts = [run[0] for run, _ in owned]
            for rank in self.ring_of(first):
                for start, stop in self.needed(rank):
                    for owner, part in _overlaps(owned, starts, start, stop):
                        if owner != rank:
                            found.setdefault((owner, rank), []).append(part)
        return {pair: joined(sorted(runs)) for pair, runs in found.items()}


def _overlaps(
    owned: Sequence[tuple[tuple[int, int], int]], starts: Sequence[int], start: int, stop: int
) -> Iterator[tuple[int, tuple[int, int]]]:
    """(owner, part) of the owned runs that meet a run."""
    for (low, high), owner in owned[max(0, bisect_right(starts, start) - 1) :]:
        if low >= stop:
            return
        if high > start:
            yield owner, (max(low, start), min(high, stop))


def block_streams(tokens: int, block_size: int, ranks: int, context: int, window: int | None, views: int) -> Streams:
    """Whole blocks dealt out to all ranks, and clean tokens to each ring of `context` ranks.

    Clean tokens even out the rows, and as far as they can the pairs; with n % 2P == 0 they are head and tail too,
    those of the rank's own blocks, and ranks are even unless a window spares the first tokens. Where ranks are more
    than NEAR from the mean, with n % 2P == 0 more than LEFT, pieces are exchanged.
    """
    assert tokens % block_size == 0, (tokens, block_size)
    owners = deal(tokens // block_size, ranks, context)
    corrupted = tuple(tuple((a * block_size, b * block_size) for a, b in runs) for runs in owners)
    dealing = _Dealing(tokens=tokens, block_size=block_size, context=context, window=window, views=views)
    if tokens % (2 * ranks * block_size) == 0:
        folded = dealing.streams(corrupted, leave=inf)
        return folded if folded.off(views) <= LEFT or ranks > MOST else dealing.nearest(folded)
    found = dealing.streams(corrupted, leave=NEAR / 4)
    return (
        found if found.off(views) <= NEAR else min(found, dealing.evened(corrupted), key=lambda each: each.off(views))
    )


@dataclass(frozen=True, kw_only=True)
class _Dealing:
    """What is dealt out: so many views beside one clean stream a ring of `context` ranks."""

    tokens: int
    block_size: int
    context: int
    window: int | None
    views: int

    @property
    def seen(self) -> Seen:
        """Pairs of the queries before a token."""
        return partial(seen_before, block_size=self.block_size, window=self.window)

    def streams(self, corrupted: Owners, *, leave: float) -> Streams:
        """These corrupted tokens, and clean ones beside them that even out rows and pairs, the latter up to `leave`."""
        clean = [runs for ring in self._rings(corrupted) for runs in self._clean(ring, leave)]
        return Streams(
            tokens=self.tokens,
            block_size=self.block_size,
            context=self.context,
            window=self.window,
            corrupted=corrupted,
            clean=tuple(clean),
        )

    def nearest(self, folded: Streams) -> Streams:
        """Of the ways to give equal rows other tokens the one that sends least, or where none is even the evenest."""
        found = [folded, self.streams(folded.corrupted, leave=NEAR / 4)]
        found += [self.beside(folded.corrupted)] if self.context == len(folded.corrupted) else []
        if all(each.off(self.views) > LEFT for each in found):
            found.append(self.evened(folded.corrupted))
        even = [each for each in found if each.off(self.views) <= LEFT]
        return (
            min(even, key=lambda each: sum(map(length, each.moves().values())))
            if even
            else min(found, key=lambda each: each.off(self.views))
        )

    def beside(self, corrupted: Owners) -> Streams:
        """Blocks exchanged together with the clean tokens that stand in them, for one ring of all ranks."""
        holders = [[Held(runs=runs, stream="both", copies=self.views + 1, unit=self.block_size)] for runs in corrupted]
        near = NEAR / 4 * (self.views + 1) * self.seen(self.tokens) / len(holders)
        both = tuple(runs for (runs,) in exchanged(holders, self.seen, near))
        return replace(self.streams(corrupted, leave=inf), corrupted=both, clean=both)

    def evened(self, corrupted: Owners) -> Streams:
        """The same with blocks exchanged between rings, then blocks and clean tokens inside of each."""
        held = [[self._blocks(runs) for runs in ring] for ring in self._rings(corrupted)]
        whole = self.seen(self.tokens)
        near = NEAR / 4 * whole * (self.views / len(held) + 1)
        between = exchanged(held, self.seen, near)
        found = self.streams(tuple(runs for ring in between for runs in ring), leave=NEAR / 4)
        inside = [
            pair
            for ring in zip(self._rings(found.corrupted), self._rings(found.clean), strict=True)
            for pair in exchanged(
                [
                    (self._blocks(mine), Held(runs=clean, stream="clean", copies=1, unit=1))
                    for mine, clean in zip(*ring, strict=True)
                ],
                self.seen,
                NEAR / 4 * sum(found.pairs(self.views, 1)) / found.ranks,
            )
        ]
        mine, clean = zip(*inside, strict=True)
        return replace(found, corrupted=mine, clean=clean)

    def _blocks(self, runs: Runs) -> Held:
        return Held(runs=runs, stream="corrupted", copies=self.views, unit=self.block_size)

    def _rings(self, owners: Owners) -> list[Owners]:
        return [owners[first : first + self.context] for first in range(0, len(owners), self.context)]

    def _clean(self, ring: Owners, leave: float) -> list[Runs]:
        """The clean tokens of each rank of a ring."""
        counts = share_out(self.tokens, [self.views * length(runs) for runs in ring])
        used = [self.views * weight(runs, self.seen) for runs in ring]
        mean = (sum(used) + self.seen(self.tokens)) / len(ring)
        return nested(counts, self.tokens, [mean - each for each in used], self.seen, leave * mean)


def combined_streams(tokens: int, block_size: int, ranks: int) -> Streams:
    """The sequence [corrupted ; clean] of 2L tokens cut by position, head and tail.

    Part r of 2P is corrupted, and its opposite, part 2P - 1 - r, clean. Where blocks do not divide by the ranks,
    corrupted parts are whole blocks, those of the tail longer, and clean parts even out the rows.
    """
    ends = [rank * (tokens // block_size) // ranks * block_size for rank in range(ranks + 1)]
    corrupted = tuple((run,) for run in pairwise(ends))
    clean: list[Runs] = []
    stop = tokens
    for count in share_out(tokens, [length(runs) for runs in corrupted]):
        clean.append(((stop - count, stop),))
        stop -= count
    return Streams(
        tokens=tokens, block_size=block_size, context=ranks, window=None, corrupted=corrupted, clean=tuple(clean)
    )
