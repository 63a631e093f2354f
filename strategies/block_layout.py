"""Which blocks and clean tokens each rank of an axis has, and what attention costs it. Knows no torch.

L tokens of a sequence, K of a block, n = L / K blocks, P ranks of the axis, of which C share one
clean stream, W tokens of a sliding window. Runs are (first, past the last). Nothing here walks
over tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshlang.plan.blocks import Runs, joined

Owners = tuple[Runs, ...]


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


def head_and_tail(counts: Sequence[int], tokens: int) -> Owners:
    """For each rank as many tokens as `counts` says: half from the head, half from the tail, an odd one between.

    Tokens that lie opposite see as many keys together wherever they are, and those in the middle half as many each.
    """
    start, stop = 0, tokens
    middle = sum(count // 2 for count in counts)
    found: list[Runs] = []
    for count in counts:
        half, odd = divmod(count, 2)
        found.append(joined([(start, start + half), (middle, middle + odd), (stop - half, stop)]))
        start, middle, stop = start + half, middle + odd, stop - half
    assert middle == stop, (counts, tokens)
    return tuple(found)


def length(runs: Iterable[tuple[int, int]]) -> int:
    """Of all runs together."""
    return sum(stop - start for start, stop in runs)


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

    def _seen(self, runs: Runs) -> int:
        return sum(self._seen_before(stop) - self._seen_before(start) for start, stop in runs)

    def _seen_before(self, stop: int) -> int:
        """Pairs of all queries at 0 ... stop - 1."""
        whole, part = divmod(stop, self.block_size)
        ends = self.block_size * (self.block_size * whole * (whole + 1) // 2 + part * (whole + 1))
        late = max(0, stop - self.window) if self.window is not None else 0
        return ends - late * (late + 1) // 2

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

    Clean tokens even out the rows: with n % 2P == 0 they are head and tail too, those of the rank's own blocks.
    """
    assert tokens % block_size == 0, (tokens, block_size)
    owners = deal(tokens // block_size, ranks, context)
    corrupted = tuple(tuple((a * block_size, b * block_size) for a, b in runs) for runs in owners)
    clean: list[Runs] = []
    for first in range(0, ranks, context):
        used = [views * length(runs) for runs in corrupted[first : first + context]]
        clean += head_and_tail(share_out(tokens, used), tokens)
    return Streams(
        tokens=tokens,
        block_size=block_size,
        context=context,
        window=window,
        corrupted=corrupted,
        clean=tuple(clean),
    )


def combined_streams(tokens: int, block_size: int, ranks: int) -> Streams:
    """The sequence [corrupted ; clean] of 2L tokens cut by position, head and tail.

    Part r of 2P is corrupted, and its opposite, part 2P - 1 - r, clean.
    """
    each = tokens // ranks
    return Streams(
        tokens=tokens,
        block_size=block_size,
        context=ranks,
        window=None,
        corrupted=tuple(((r * each, (r + 1) * each),) for r in range(ranks)),
        clean=tuple(((tokens - (r + 1) * each, tokens - r * each),) for r in range(ranks)),
    )
