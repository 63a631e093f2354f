"""Attention over blocks: who computes which pairs of a query and a key, and whose keys they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ...plan.blocks import Blocks, Runs
from .canvas import Picture, box, legend, words
from .markup import Markup, joined, tag
from .palette import HEATS
from .shown import shown

#: Blocks along a side of the mask, and ranks along a side of the map; more are put together.
MOST_BLOCKS, MOST_RANKS = 64, 32
_SIDE, _LEFT = 360.0, 78.0


def seen_pairs(blocks: Blocks, window: int | None = None) -> tuple[tuple[int, ...], ...]:
    """For each rank the pairs of its queries with the keys of each rank, in one layer and one sequence.

    A token sees from its window's first to the end of its block. A corrupted one sees the tokens of
    its own block, which its rank has, and the clean ones before; a clean one sees clean ones only.
    Each ring of `context` ranks has the clean keys once. Row r sums up to `blocks.pairs[r]`.
    """
    return tuple(_of_rank(blocks, rank, window) for rank in range(blocks.size))


def _of_rank(blocks: Blocks, rank: int, window: int | None) -> tuple[int, ...]:
    size, found = blocks.block_size, [0] * blocks.size
    ring = range(rank // blocks.context * blocks.context, (rank // blocks.context + 1) * blocks.context)
    corrupted = [(a * size, b * size) for a, b in blocks.owners[rank]]
    for times, runs, ahead in ((blocks.views, corrupted, 0), (_towers(blocks, rank), blocks.clean[rank], size)):
        for start, stop in _by_block(runs, size):
            end = start // size * size + ahead
            for other in ring:
                found[other] += times * _before(blocks.clean[other], start, stop, end, window)
            if not ahead:
                found[rank] += times * _before(((end, end + size),), start, stop, end + size, window)
    return tuple(found)


def _towers(blocks: Blocks, rank: int) -> int:
    """Clean copies of a sequence, from the rows that the plan counts."""
    clean = sum(stop - start for start, stop in blocks.clean[rank])
    corrupted = sum(stop - start for start, stop in blocks.owners[rank]) * blocks.block_size
    return (blocks.rows[rank] - blocks.views * corrupted) // clean if clean else 0


def _by_block(runs: Runs | Sequence[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    for start, stop in runs:
        while start < stop:
            end = min(stop, (start // size + 1) * size)
            yield start, end
            start = end


def _before(keys: Runs, start: int, stop: int, end: int, window: int | None) -> int:
    """Pairs of the queries start ... stop - 1 with those of some keys that lie in their window and before `end`."""
    found = 0
    for low, high in keys:
        high = min(high, end)
        if low >= high:
            continue
        found += (stop - start) * (high - low)
        if window is not None:  # without the keys before i - window + 1, for each query i
            found -= _ramp(stop - window, high - low, low) - _ramp(start - window, high - low, low)
    return found


def _ramp(stop: int, most: int, low: int) -> int:
    """The sum over i < stop of min(max(i + 1 - low, 0), most)."""
    n = max(0, stop - low)
    rising = min(n, most)
    return rising * (rising + 1) // 2 + (n - rising) * most


def pairs_picture(blocks: Blocks, window: int | None = None) -> Picture:
    """Left, the mask by block, in the colour of the rank that computes; right, pairs by rank of query and of key."""
    counts = seen_pairs(blocks, window)
    body = joined([*_mask(blocks, window), *_map(blocks, counts, _LEFT + _SIDE * 2 + 100)])
    title = f"{blocks.blocks} blocks of {blocks.block_size} tokens over {blocks.axis} {blocks.size}: attention by rank"
    return Picture(name="blocks", title=title, width=_LEFT + _SIDE * 3 + 190, height=_SIDE + 116, body=body)


@dataclass(frozen=True, kw_only=True)
class _Tile:
    """Consecutive blocks that are drawn as one, and the rank that has most of each stream."""

    first: int
    stop: int
    corrupted: int
    clean: int


def _tiles(blocks: Blocks) -> list[_Tile]:
    step = -(-blocks.blocks // MOST_BLOCKS)
    size = blocks.block_size
    owners = [tuple((a * size, b * size) for a, b in runs) for runs in blocks.owners]
    found = []
    for first in range(0, blocks.blocks, step):
        stop = min(blocks.blocks, first + step)
        at = (first * size, stop * size)
        found.append(_Tile(first=first, stop=stop, corrupted=_most(owners, at), clean=_most(blocks.clean, at)))
    return found


def _most(owners: Sequence[Runs], at: tuple[int, int]) -> int:
    """Who has most of a stretch of tokens."""

    def has(runs: Runs) -> int:
        return sum(max(0, min(b, at[1]) - max(a, at[0])) for a, b in runs)

    return max(range(len(owners)), key=lambda rank: has(owners[rank]))


def _mask(blocks: Blocks, window: int | None) -> Iterator[Markup]:
    """Rows: queries, corrupted blocks above clean ones. Columns: keys, clean blocks beside corrupted ones."""
    tiles = _tiles(blocks)
    left, top, gap = _LEFT, 50.0, 10.0
    each = _SIDE / len(tiles)
    across, high = each, (_SIDE - gap) / (2 * len(tiles))
    yield words(left, 18, f"Mask: which rank along {blocks.axis} computes", "strong")
    yield words(left + _SIDE / 2, 42, "clean keys", "mid quiet")
    yield words(left + _SIDE + gap + _SIDE / 2, 42, "corrupted keys", "mid quiet")
    for stream, y0 in (("corrupted", top), ("clean", top + _SIDE / 2 + gap / 2)):
        yield words(left - 8, y0 + _SIDE / 4 - 4, stream, "end quiet")
        yield words(left - 8, y0 + _SIDE / 4 + 9, "queries", "end quiet")
        for row, tile in enumerate(tiles):
            rank = tile.corrupted if stream == "corrupted" else tile.clean
            cells = list(_row(tiles, row, stream, blocks, window))
            y = y0 + high * row
            parts = [
                box(left + (_SIDE + gap) * side + across * a, y, across * (b - a), high, f"s{rank % 8} thin")
                for side, a, b in cells
            ]
            name = f"{tile.first}" if tile.stop == tile.first + 1 else f"{tile.first}-{tile.stop - 1}"
            yield tag("g", tag("title", f"queries of {stream} block {name}: rank {rank} along {blocks.axis}"), *parts)
    for x in (left, left + _SIDE + gap):
        for y in (top, top + _SIDE / 2 + gap / 2):
            yield box(x, y, _SIDE, (_SIDE - gap) / 2, "frame")
    entries = [(f"s{rank % 8}", f"rank {rank}") for rank in shown(blocks.size, 8)]
    yield legend(left, top + _SIDE + 24, entries)
    if blocks.size > 8:
        yield words(left, top + _SIDE + 42, "eight colours in turn", "quiet small")


def _row(
    tiles: list[_Tile], row: int, stream: str, blocks: Blocks, window: int | None
) -> Iterator[tuple[int, int, int]]:
    """(0 clean or 1 corrupted keys, first tile, tile past the last) that the queries of a tile see."""
    reach = -1 if window is None else max(0, tiles[row].first * blocks.block_size - window + 1)
    first = 0 if window is None else next(i for i, t in enumerate(tiles) if t.stop * blocks.block_size > reach)
    stop = row if stream == "corrupted" and tiles[row].stop == tiles[row].first + 1 else row + 1
    if first < stop:
        yield 0, first, stop
    if stream == "corrupted":
        yield 1, row, row + 1


def _map(blocks: Blocks, counts: Sequence[Sequence[int]], left: float) -> Iterator[Markup]:
    """Pairs by rank of the query, downwards, and of the key, across; deeper is more."""
    bounds = _bounds(blocks.size)
    rows = [_sums([sum(counts[r][k] for r in range(a, b)) for k in range(blocks.size)], bounds) for a, b in bounds]
    most = max(max(row) for row in rows) or 1
    each, top = _SIDE / len(bounds), 50.0
    yield words(left, 18, "Pairs a layer, by rank of the query (down) and of the key (across)", "strong")
    for (a, b), row, y in zip(bounds, rows, accumulate([top, *[each] * (len(bounds) - 1)]), strict=True):
        name = f"{a}" if b == a + 1 else f"{a}-{b - 1}"
        yield words(left - 8, y + each / 2 + 4, name, "end quiet")
        yield words(left + _SIDE + 10, y + each / 2 + 4, f"{sum(row):,}", "mono")
        for (c, d), count, x in zip(bounds, row, accumulate([left, *[each] * (len(bounds) - 1)]), strict=True):
            heat = 0 if not count else 1 + round((HEATS - 2) * count / most)
            key = f"{c}" if d == c + 1 else f"{c}-{d - 1}"
            told = f"queries of rank {name}, keys of rank {key}: {count:,} pairs"
            inner = [tag("title", told), box(x, y, each, each, f"h{heat} thin")]
            if each > 62:
                inner.append(words(x + each / 2, y + each / 2 + 4, f"{count:,}", "mid upon" if heat > 4 else "mid"))
            yield tag("g", *inner)
    for (c, d), x in zip(bounds, accumulate([left, *[each] * (len(bounds) - 1)]), strict=True):
        if each > 20 or c == 0 or d == blocks.size:
            yield words(x + each / 2, 42, c if d == c + 1 else f"{c}-{d - 1}", "mid quiet")
    yield words(left + _SIDE + 10, 42, "sum", "quiet")
    note = "beside the diagonal: keys that come from another rank"
    yield words(left, top + _SIDE + 24, note, "quiet")


def _bounds(ranks: int) -> list[tuple[int, int]]:
    step = -(-ranks // MOST_RANKS)
    return [(a, min(ranks, a + step)) for a in range(0, ranks, step)]


def _sums(row: Sequence[int], bounds: Sequence[tuple[int, int]]) -> list[int]:
    return [sum(row[a:b]) for a, b in bounds]
