"""One action of an order, read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

Kind = Literal["F", "B", "I", "W"]

_ACTION = re.compile(r"(\d+)([FBIW])(\d+)", re.ASCII)
_TOGETHER = re.compile(r"\(([^()]*)\)OVERLAP_F_B")


@dataclass(frozen=True)
class Action:
    """What a stage does with a microbatch: F, a whole backward B, or its halves I and W."""

    stage: int
    kind: Kind
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


def read_cell(text: str) -> tuple[Action, ...]:
    """The actions of one cell: one, several at once as `(0F3;3B1)OVERLAP_F_B`, or none of an empty cell.

    Raises:
        ValueError: the text is no action.
    """
    text = text.strip()
    if not text:
        return ()
    together = _TOGETHER.fullmatch(text)
    return tuple(map(_action, together.group(1).split(";") if together else [text]))


def _action(text: str) -> Action:
    match = _ACTION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"`{text.strip()}` is no action, such as 0F0, 0B0, 0I0 or 0W0")
    stage, kind, microbatch = match.groups()
    return Action(int(stage), cast(Kind, kind), int(microbatch))


def flat(row: tuple[str, ...]) -> Iterator[Action]:
    """The actions of a row, one by one."""
    for cell in row:
        yield from read_cell(cell)
