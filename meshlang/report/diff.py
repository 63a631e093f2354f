"""The difference of two plans as text."""

from __future__ import annotations

from collections.abc import Iterable

from ..fold import fold
from ..plan.diff import Changed, Difference
from .tables import bytes_text, table


def diff_text(found: Difference, names: Iterable[str]) -> str:
    """What changes, and the bytes that move; "no difference" when nothing does."""
    if found.empty:
        return "no difference\n"
    known = list(names)
    parts = [
        _list("mesh and run", found.mesh),
        _tensors(found.tensors, known),
        _list("only in the first", fold(found.only_before, known)),
        _list("only in the second", fold(found.only_after, known)),
        _list("of another shape, so not moved", fold(found.reshaped, known)),
        _list("collectives a step", found.collectives),
        _list("state at rest", found.state),
        _list("memory at once", found.memory),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _list(title: str, lines: Iterable[str]) -> list[str]:
    shown = [f"  {line}" for line in lines]
    return [title, *shown] if shown else []


def _tensors(changed: tuple[Changed, ...], known: list[str]) -> list[str]:
    if not changed:
        return []
    groups: dict[tuple[object, ...], list[Changed]] = {}
    for each in changed:
        groups.setdefault((each.before, each.after, each.moved, each.most), []).append(each)
    rows = []
    for group in groups.values():
        first, count = group[0], len(group)
        name, *others = fold([each.fqn for each in group], known)
        rows.append([name, first.before, first.after, bytes_text(first.moved * count), bytes_text(first.most * count)])
        rows += [[other, "", "", "", ""] for other in others]
    total = sum(each.moved for each in changed)
    header = ["tensors", "before", "after", "moved", "most on a rank"]
    last = f"  in all {bytes_text(total)} of parameters and moments move, counted over all ranks"
    return ["tensors that change place", *table(header, rows, right=frozenset({3, 4})), last]
