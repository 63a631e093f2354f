"""Numbers of bytes as people read them."""

from __future__ import annotations


def bytes_text(count: int | None) -> str:
    """`1536` -> "1.50 KiB"; None, a size that is not known, -> "?"."""
    if count is None:
        return "?"
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.2f} {unit}"
        size /= 1024
    return f"{size:.2f} TiB"
