"""Which rank along an axis has which blocks and clean tokens, and how even the work is, as tables."""

from __future__ import annotations

from ..fold import ranges
from ..plan.blocks import Blocks, Runs, imbalance
from .tables import bytes_text, table

#: Ranks that are shown.
MOST = 16


def blocks_text(blocks: Blocks) -> list[str]:
    """Owners, rows and pairs of a query and a key; each rank along the axis."""
    rows = [
        [
            str(rank),
            ranges(block for start, stop in blocks.owners[rank] for block in range(start, stop)),
            _tokens(blocks.clean[rank]),
            str(blocks.rows[rank]),
            str(blocks.pairs[rank]),
        ]
        for rank in range(min(blocks.size, MOST))
    ]
    header = [blocks.axis, "corrupted blocks", "clean tokens", "rows", "pairs a layer"]
    left = blocks.size - MOST
    return [
        f"blocks of block diffusion: {blocks.blocks} of {blocks.block_size} tokens, {_streams(blocks)}",
        *table(header, rows, right=frozenset({0, 3, 4})),
        *([f"  ... {left} more"] if left > 0 else []),
        f"  fullest rank above the mean: rows {imbalance(blocks.rows):.2%}, pairs {imbalance(blocks.pairs):.2%}",
        *_last(blocks),
        f"  a rank receives in attention, a layer: forward {bytes_text(blocks.forward)}, "
        f"backward {bytes_text(blocks.backward)}",
    ]


def _last(blocks: Blocks) -> list[str]:
    """What the last layer's ranks have, where its clean rows are no queries."""
    if not blocks.last_rows:
        return []
    rows, pairs = max(blocks.last_rows), max(blocks.last_pairs)
    above = f"rows {imbalance(blocks.last_rows):.2%}, pairs {imbalance(blocks.last_pairs):.2%}"
    return [
        f"  in the last layer, without clean queries: {rows} rows and {pairs} pairs at most; above the mean: {above}"
    ]


def _tokens(runs: Runs) -> str:
    return ", ".join(f"{start}-{stop - 1}" for start, stop in runs) or "none"


def _streams(blocks: Blocks) -> str:
    views = f"{blocks.views} views with one clean stream" if blocks.shared and blocks.views > 1 else "one clean stream"
    if not blocks.shared:
        views = f"{blocks.views} views with a clean stream each"
    if blocks.context == blocks.size:
        return f"{views}, cut over all of {blocks.axis}"
    return f"{views}, whole on each rank" if blocks.context == 1 else f"{views}, cut over {blocks.context} ranks each"
