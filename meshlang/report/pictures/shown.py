"""What is drawn of many alike: the first few, a gap, the last. Nothing draws every rank of a large mesh."""

from __future__ import annotations

from collections.abc import Sequence

#: Left of any axis that is longer.
_LEAST = 3


def shown(size: int, most: int) -> tuple[int, ...]:
    """Coordinates that are drawn of 0 ... size - 1: all, or the first most - 1 and the last."""
    return tuple(range(size)) if size <= most else (*range(max(1, most - 1)), size - 1)


def fitted(sizes: Sequence[int], most: int) -> tuple[tuple[int, ...], ...]:
    """For each of several sizes, outermost first, what is drawn, so that about `most` come of all together.

    The outermost gives way first, down to three.
    """
    counts = [min(size, most) for size in sizes]
    for index in range(len(counts)):
        inner = 1
        for count in counts[index + 1 :]:
            inner *= count
        outer = _LEAST**index
        counts[index] = min(counts[index], max(_LEAST, most // max(1, min(inner, most // _LEAST) * outer)))
    return tuple(shown(size, count) for size, count in zip(sizes, counts, strict=True))
