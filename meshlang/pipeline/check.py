"""Laws of an order of actions: what each stage has to do once, where, and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from ..diagnostics import counted
from .actions import Action

#: Rows of cells; a cell holds the actions that a rank takes at once.
Cells = Sequence[Sequence[tuple[Action, ...]]]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A law that an order breaks, at a cell of it; `cell` None is the whole row, `row` None the whole order."""

    message: str
    row: int | None = None
    cell: int | None = None


def way(stage: int, ranks: int, style: Literal["loop", "v"]) -> int:
    """The rank of a stage: stages loop over the ranks, or go to the last rank and back."""
    there, place = divmod(stage, ranks)
    return ranks - 1 - place if style == "v" and there % 2 else place


def stages_of(cells: Cells) -> dict[int, int]:
    """Stage -> the first row that names it."""
    found: dict[int, int] = {}
    for index, row in enumerate(cells):
        for action in _flat(row):
            found.setdefault(action.stage, index)
    return found


def style_of(places: dict[int, int], ranks: int) -> Literal["loop", "v"] | None:
    """How the stages lie on the ranks; None for any other way."""
    if all(way(stage, ranks, "loop") == row for stage, row in places.items()):
        return "loop"
    if len(places) == 2 * ranks and all(way(stage, ranks, "v") == row for stage, row in places.items()):
        return "v"
    return None


def problems(cells: Cells, *, ranks: int, microbatches: int) -> list[Problem]:
    """What stands against an order; each law is asked only where those before it hold."""
    if len(cells) != ranks:
        return [
            Problem(message=f"the order has {counted(len(cells), 'row')}, and the axis has {counted(ranks, 'rank')}")
        ]
    for law in (_one_place, _all_stages, _in_range, _once, _own_order, _ends):
        found = list(law(cells, microbatches))
        if found:
            return found
    return []


def _flat(row: Sequence[tuple[Action, ...]]) -> Iterator[Action]:
    for cell in row:
        yield from cell


def _placed(cells: Cells) -> Iterator[tuple[int, int, Action]]:
    for index, row in enumerate(cells):
        for place, cell in enumerate(row):
            yield from ((index, place, action) for action in cell)


def _one_place(cells: Cells, microbatches: int) -> Iterator[Problem]:
    """A stage lies on one rank."""
    owner = stages_of(cells)
    for row, cell, action in _placed(cells):
        if owner[action.stage] != row:
            message = f"stage {action.stage} is on rank {owner[action.stage]} and on rank {row}"
            yield Problem(message=message, row=row, cell=cell)
            return


def _all_stages(cells: Cells, microbatches: int) -> Iterator[Problem]:
    """Each rank has as many stages, and none is left out; torchtitan knows two ways to lay them out."""
    places = stages_of(cells)
    ranks, count = len(cells), len(places)
    first = next(stage for stage in range(count + 1) if stage not in places)
    if first < count or not count:
        yield Problem(message=f"stage {first} has no action")
    elif count % ranks:
        yield Problem(message=f"{counted(count, 'stage', does=True)} not divide over {counted(ranks, 'rank')}")
    elif style_of(places, ranks) is None:
        stage = next(s for s in range(count) if places[s] != way(s, ranks, "loop"))
        where = f"stage {stage} is on rank {places[stage]}"
        yield Problem(message=f"{where}: stages loop over the ranks, or are two on each in the shape of a V")


def _in_range(cells: Cells, microbatches: int) -> Iterator[Problem]:
    for row, cell, action in _placed(cells):
        if action.microbatch >= microbatches:
            message = f"{action} is of microbatch {action.microbatch}, and there are {microbatches}"
            yield Problem(message=message, row=row, cell=cell)
            return


def _once(cells: Cells, microbatches: int) -> Iterator[Problem]:
    """Each stage takes each microbatch forward once, and backward once: whole, or in two halves."""
    count = Counter(action for _, _, action in _placed(cells))
    for action, times in count.items():
        if times > 1:
            row, cell = [(r, c) for r, c, other in _placed(cells) if other == action][1]
            yield Problem(message=f"{action} is there {times} times", row=row, cell=cell)
            return
    places = stages_of(cells)
    for stage, microbatch in product(sorted(places), range(microbatches)):
        have = {kind for kind in "FBIW" if Action(stage, kind, microbatch) in count}  # type: ignore[arg-type]
        if have not in ({"F", "B"}, {"F", "I", "W"}):
            lacks = "F" if "F" not in have else "B" if not have & {"I", "W"} else "W" if "I" in have else "I"
            what = f"both {stage}B{microbatch} and its half" if "B" in have and have & {"I", "W"} else None
            message = f"the order has {what}" if what else f"the order lacks {stage}{lacks}{microbatch}"
            yield Problem(message=message, row=places[stage])
            return


def _own_order(cells: Cells, microbatches: int) -> Iterator[Problem]:
    """A stage's forward comes before its backward, and the gradients of weights come last."""
    seen: set[Action] = set()
    for row, cell, action in _placed(cells):
        first = {"B": "F", "I": "F", "W": "I"}.get(action.kind)
        if first is not None and Action(action.stage, first, action.microbatch) not in seen:  # type: ignore[arg-type]
            message = f"{action} stands before {action.stage}{first}{action.microbatch}"
            yield Problem(message=message, row=row, cell=cell)
            return
        seen.add(action)


def _ends(cells: Cells, microbatches: int) -> Iterator[Problem]:
    """Ranks that take their actions in order, each as soon as it can, come to the end."""
    last = max(stages_of(cells))
    rows = [[cell for cell in row if cell] for row in cells]
    at = [0] * len(rows)
    done: set[Action] = set()
    moved = True
    while moved:
        moved = False
        for index, row in enumerate(rows):
            while at[index] < len(row) and all(_ready(action, done, last) for action in row[at[index]]):
                done.update(row[at[index]])
                at[index] += 1
                moved = True
    for index, row in enumerate(rows):
        if at[index] < len(row):
            stuck = next(action for action in row[at[index]] if not _ready(action, done, last))
            message = f"no rank can go on: rank {index} waits at {stuck} for {_needs(stuck)}"
            yield Problem(message=message, row=index)
            return


def _ready(action: Action, done: set[Action], last: int) -> bool:
    if action.kind == "F":
        return action.stage == 0 or Action(action.stage - 1, "F", action.microbatch) in done
    if action.kind == "W" or action.stage == last:
        return True
    return any(Action(action.stage + 1, kind, action.microbatch) in done for kind in ("B", "I"))


def _needs(action: Action) -> str:
    if action.kind == "F":
        return f"{action.stage - 1}F{action.microbatch}"
    return f"the backward of stage {action.stage + 1} for microbatch {action.microbatch}"
