"""Backwards in two: gradients of inputs when they are due, those of weights where a rank would wait.

Only gradients of inputs are needed by the stage before, so the way back is as long as they are (Qi et
al. 2023, zero bubble). The others hold their activations until they run; a rank puts off no more of
them than keeps it at the peak that it has with whole backwards. BSIPipe idles (p / 2 - 1) F / (v s)
then, where F = I = W and its closed form is exact: only its forwards' way to the middle of the ranks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from .costs import Costs
from .ir import Op, Program
from .live import peak_counts
from .simulate import times_of


def late_weights(program: Program, costs: Costs | None = None) -> Program:
    """The Program with each whole backward in two; where its second half stands follows from the costs.

    Every other operation keeps its place among the others.
    """
    run = _Run(program, costs or Costs())
    for rank in range(program.ranks):
        heappush(run.events, (0.0, rank))
    while run.events:
        now, rank = heappop(run.events)
        run.step(rank, now)
    assert all(not each.todo and not each.late for each in run.ranks), "a deadlock"
    return replace(program, order=tuple(tuple(each.row) for each in run.ranks))


@dataclass
class _Rank:
    """What a rank still has to do, the gradients of weights that it put off, and what it did."""

    todo: deque[Op]
    most: int
    late: deque[Op] = field(default_factory=deque[Op])
    row: list[Op] = field(default_factory=list[Op])
    live: int = 0
    free: float = 0.0


class _Run:
    """All ranks in the order of time: what has arrived by now decides what a rank does next."""

    def __init__(self, program: Program, costs: Costs) -> None:
        self.program = program
        halves = (tuple(replace(op, kind="I") if op.kind == "B" else op for op in row) for row in program.order)
        peaks = peak_counts(program)
        self.ranks = [_Rank(deque(row), peaks[rank]) for rank, row in enumerate(halves)]
        self.events: list[tuple[float, int]] = []
        self.done: dict[Op, float] = {}
        self.times = times_of(program, costs)

    def step(self, rank: int, now: float) -> None:
        """What a rank does at a time: its next operation if that can run, or gradients put off, or it waits."""
        each = self.ranks[rank]
        if now < each.free:
            return
        op = each.todo[0] if each.todo else None
        full = op is not None and op.kind == "F" and each.live >= each.most
        ready = None if op is None else self.ready(op)
        if op is not None and ready is not None and ready <= now + 1e-12 and not full:
            self.take(rank, each.todo.popleft(), now)
        elif each.late:
            self.take(rank, each.late.popleft(), now)
        elif ready is not None:
            heappush(self.events, (ready, rank))

    def take(self, rank: int, op: Op, now: float) -> None:
        """Does an operation, and tells the rank that waits for it."""
        each = self.ranks[rank]
        each.free = self.done[op] = now + self.times[op.kind, op.stage == self.program.stages - 1][op.subsequence]
        each.row.append(op)
        each.live += (op.kind == "F") - (op.kind in "BW")
        if op.kind == "I":
            each.late.append(replace(op, kind="W"))
        heappush(self.events, (each.free, rank))
        stage = op.stage + (1 if op.kind == "F" else -1)
        if op.kind != "W" and 0 <= stage < self.program.stages:
            heappush(self.events, (each.free, self.program.host[op.replica, stage]))

    def ready(self, op: Op) -> float | None:
        """When what an operation needs from a neighbouring stage is there; None where it is not made yet."""
        stage = op.stage - 1 if op.kind == "F" else op.stage + 1
        if op.kind == "W" or not 0 <= stage < self.program.stages:
            return 0.0
        return self.done.get(replace(op, stage=stage))
