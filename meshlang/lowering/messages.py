"""What ranks of a pipeline hand to each other, read off a Program.

A directed edge carries messages one way, in the order in which the sending rank makes them; the
receiving rank knows that order too. A value whose next stage is on the same rank is no message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..pipeline.ir import Op, Program


class Message(NamedTuple):
    """What a stage needs before it can go on: its input (F), or the gradient of its output (B)."""

    kind: Literal["F", "B"]
    replica: int
    sequence: int
    subsequence: int
    stage: int

    def __str__(self) -> str:
        what = "input of" if self.kind == "F" else "gradient for"
        return f"the {what} {Op(self.kind, *self[1:])}"


def needed(program: Program, op: Op) -> Message | None:
    """What an operation waits for; None where it has all it needs on its own stage."""
    if op.kind == "W" or op.stage == (0 if op.kind == "F" else program.stages - 1):
        return None
    return Message("F" if op.kind == "F" else "B", op.replica, op.sequence, op.subsequence, op.stage)


def made(program: Program, op: Op) -> Message | None:
    """What an operation makes for another stage."""
    if op.kind == "W" or op.stage == (program.stages - 1 if op.kind == "F" else 0):
        return None
    stage = op.stage + 1 if op.kind == "F" else op.stage - 1
    return Message("F" if op.kind == "F" else "B", op.replica, op.sequence, op.subsequence, stage)


def sent(program: Program, rank: int, *, backward: bool = True) -> Iterator[tuple[int, Message]]:
    """(to whom, what) a rank sends in one step, in order."""
    for op in program.order[rank]:
        message = made(program, op) if backward or op.kind == "F" else None
        if message is None:
            continue
        there = program.host[message.replica, message.stage]
        if there != rank:
            yield there, message


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """The ranks that one rank sends to, and those it receives from, in rank order."""

    after: tuple[int, ...]
    before: tuple[int, ...]


def edges(program: Program) -> tuple[tuple[int, int], ...]:
    """Every directed edge that carries something, in order: what each rank makes its groups by."""
    host, found = program.host, set[tuple[int, int]]()
    for replica, stage in host:
        if stage + 1 < program.stages:
            a, b = host[replica, stage], host[replica, stage + 1]
            found |= {(a, b), (b, a)} if a != b else set()
    return tuple(sorted(found))


def neighbours(program: Program, rank: int) -> Neighbours:
    """Whom a rank exchanges values with."""
    every = edges(program)
    return Neighbours(
        after=tuple(b for a, b in every if a == rank),
        before=tuple(a for a, b in every if b == rank),
    )


def received(program: Program, rank: int, *, backward: bool = True) -> dict[int, list[Message]]:
    """From whom a rank receives what in one step, in the order that each of them sends it."""
    return {
        before: [message for to, message in sent(program, before, backward=backward) if to == rank]
        for before in neighbours(program, rank).before
    }
