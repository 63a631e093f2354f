"""The nearest known name, or none."""

from __future__ import annotations

from collections.abc import Iterable

#: Longer names are cut here before they are compared.
_LONGEST = 64


def near(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was most likely meant to be; None when none is near.

    Near is one edit (a letter more, less or other, two neighbours swapped), or one for each three
    letters of the name, so long as a letter stays. Case, and `-` for `_`, count nothing.
    """
    found: tuple[int, int, str] | None = None
    one = _folded(name)
    letters = set(one)
    for each in known:
        other = _folded(each)
        most = max(1, min(len(name), len(each)) // 3)
        if abs(len(one) - len(other)) > most or len(letters.difference(other)) > most:
            continue  # each letter more, and each that the other lacks, is an edit
        steps = distance(one, other)
        longer = max(len(name), len(each))
        if steps > most or steps >= longer:
            continue
        candidate = (steps, abs(len(name) - len(each)), each)
        found = candidate if found is None else min(found, candidate)
    return None if found is None else found[2]


def distance(one: str, other: str) -> int:
    """Edits between two texts: letters put in, left out, changed, or neighbours swapped."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, char in enumerate(one):
        row = [i + 1]
        for j, against in enumerate(other):
            step = min(last[j + 1] + 1, row[j] + 1, last[j] + (char != against))
            if i and j and char == other[j - 1] and one[i - 1] == against:
                step = min(step, before[j - 1] + 1)
            row.append(step)
        before, last = last, row
    return last[-1]


def _folded(name: str) -> str:
    return name[:_LONGEST].lower().replace("-", "_")
