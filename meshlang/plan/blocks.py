"""How blocks lie over an axis, and that as plain data: runs are written out block by block, and read as runs again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

#: Runs of blocks or tokens, each from its first to the one past its last.
Runs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """How the two streams of block diffusion lie over an axis; one entry a rank along it.

    Attributes:
        context: ranks that share one copy of the clean stream.
        sequence: tokens.
        views: corrupted copies of each sequence; `shared` when they share one clean copy.
        owners: runs of blocks whose corrupted tokens a rank has.
        clean: runs of clean tokens that a rank has.
        rows: tokens of both streams that a rank computes for one sequence.
        pairs: of a query and a key, in one layer and one sequence.
        last_rows, last_pairs: the same in the last layer where its clean rows are no queries; () where they are.
        forward, backward: bytes that a rank receives inside the attention of one layer in a pass, on
            average; None without `[sizes]`.
    """

    axis: str
    size: int
    context: int
    block_size: int
    sequence: int
    views: int
    shared: bool
    owners: tuple[Runs, ...]
    clean: tuple[Runs, ...]
    rows: tuple[int, ...]
    pairs: tuple[int, ...]
    forward: int | None
    backward: int | None
    last_rows: tuple[int, ...] = ()
    last_pairs: tuple[int, ...] = ()

    @property
    def blocks(self) -> int:
        """Blocks of a sequence."""
        return self.sequence // self.block_size


#: Dims of the rows of all streams: of those that come into attention, and of those that go on.
STREAMS = (("seq", "stream"), ("seq", "kept"))


def fullest(
    blocks: Blocks,
    names: Sequence[tuple[str, ...]],
    shape: Sequence[int | None],
    cuts: Sequence[tuple[str, ...]],
) -> Fraction:
    """How many times its equal part of a value's rows the fullest rank has: more if ranks have clean copies each.

    `rows` are those of all copies of a sequence, a dim of rows those beside one clean copy.
    """
    towers = 1 if blocks.shared else blocks.views
    whole = blocks.sequence * (blocks.views + towers)
    for dim, size, axes in zip(names, shape, cuts, strict=True):
        if dim in STREAMS and blocks.axis in axes and size:
            rows = blocks.rows if size * towers == whole else blocks.last_rows
            return Fraction(max(rows) * blocks.size, size * towers)
    return Fraction(1)


def to_data(blocks: Blocks) -> dict[str, Any]:
    """What `plan --json` holds under `block`."""
    return {
        "axis": blocks.axis,
        "size": blocks.size,
        "context": blocks.context,
        "block_size": blocks.block_size,
        "sequence": blocks.sequence,
        "views": blocks.views,
        "shared": blocks.shared,
        "owners": [[block for start, stop in runs for block in range(start, stop)] for runs in blocks.owners],
        "clean": [[list(run) for run in runs] for runs in blocks.clean],
        "rows": list(blocks.rows),
        "pairs": list(blocks.pairs),
        "bytes_per_layer": {"forward": blocks.forward, "backward": blocks.backward},
        **({"last_layer": {"rows": [*blocks.last_rows], "pairs": [*blocks.last_pairs]}} if blocks.last_rows else {}),
    }


def from_data(data: dict[str, Any]) -> Blocks:
    """The blocks of a document made by `to_data`."""
    names = ("axis", "size", "context", "block_size", "sequence", "views", "shared")
    return Blocks(
        **{name: data[name] for name in names},
        owners=tuple(_runs(blocks) for blocks in data["owners"]),
        clean=tuple(tuple((start, stop) for start, stop in runs) for runs in data["clean"]),
        rows=tuple(data["rows"]),
        pairs=tuple(data["pairs"]),
        forward=data["bytes_per_layer"]["forward"],
        backward=data["bytes_per_layer"]["backward"],
        last_rows=tuple(data.get("last_layer", {}).get("rows", ())),
        last_pairs=tuple(data.get("last_layer", {}).get("pairs", ())),
    )


def _runs(blocks: Sequence[int]) -> Runs:
    """Ascending numbers as runs."""
    return joined((block, block + 1) for block in blocks)


def joined(runs: Iterable[tuple[int, int]]) -> Runs:
    """Ascending runs, those that touch or overlap as one, empty ones left out."""
    found: list[tuple[int, int]] = []
    for start, stop in runs:
        if start >= stop:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return tuple(found)


def imbalance(counts: Sequence[int]) -> float:
    """How far the fullest rank is above the mean, as a share of the mean."""
    return max(counts) * len(counts) / sum(counts) - 1
