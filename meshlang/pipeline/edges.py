"""What ranks send each other: for each directed pair of ranks one line of messages, in the sender's order."""

from __future__ import annotations

from dataclasses import dataclass

from .ir import Op, Program


@dataclass(frozen=True, slots=True)
class Message:
    """What one operation gives another on another rank: hidden states forward, their gradient backward."""

    made_by: Op
    for_: Op


def edges(program: Program) -> dict[tuple[int, int], tuple[Message, ...]]:
    """(sender, receiver) -> its messages in the order in which the sender makes them."""
    found: dict[tuple[int, int], list[Message]] = {}
    kinds = _backward_kinds(program)
    for rank, _, op in program.ops():
        taken = receiver(op, program, kinds)
        if taken is not None and taken[1] != rank:
            found.setdefault((rank, taken[1]), []).append(Message(op, taken[0]))
    return {edge: tuple(messages) for edge, messages in sorted(found.items())}


def receiver(op: Op, program: Program, kinds: dict[tuple[int, int, int], str]) -> tuple[Op, int] | None:
    """The operation that takes what `op` makes, and its rank; None for the last of a chain, and for W."""
    stage = op.stage + 1 if op.kind == "F" else op.stage - 1
    if op.kind == "W" or not 0 <= stage < program.stages:
        return None
    kind = "F" if op.kind == "F" else kinds.get((op.sequence, op.subsequence, stage), "B")
    taker = Op(kind, op.replica, op.sequence, op.subsequence, stage)  # pyright: ignore[reportArgumentType]
    return taker, program.host[op.replica, stage]


def _backward_kinds(program: Program) -> dict[tuple[int, int, int], str]:
    """Where the backward is in two: (sequence, subsequence, stage) -> I."""
    return {(op.sequence, op.subsequence, op.stage): "I" for _, _, op in program.ops() if op.kind == "I"}


def receive_buffers(program: Program) -> int:
    """How many messages a pair of ranks must hold at once when they come in the sender's order; 1 is a plain queue."""
    place = {op: index for row in program.order for index, op in enumerate(row)}
    most = 1
    for messages in edges(program).values():
        taken = sorted(range(len(messages)), key=lambda number: place[messages[number].for_])
        last = 0
        for index, number in enumerate(taken):
            last = max(last, number)
            most = max(most, last - index + 1)
    return most
