"""Rows of words as aligned columns, and numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from ..amounts import bytes_text as bytes_text


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> list[str]:
    """Lines of aligned columns, two spaces apart and indented by two; columns in `right` are flush right."""
    grid = [list(header), *map(list, rows)]
    widths = [max(len(row[i]) for row in grid) for i in range(len(header))]
    lines = []
    for row in grid:
        cells = [
            cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    return lines


def shape_text(shape: Sequence[int | None]) -> str:
    """`(8, None, 256)` -> "8 x ? x 256"."""
    return " x ".join("?" if size is None else str(size) for size in shape) or "scalar"
