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


@dataclass(slots=True)
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
        peaks = peak_counts(program)
        self.ranks = [_Rank(deque(row), peaks[rank]) for rank, row in enumerate(program.order)]
        self.events: list[tuple[float, int]] = []
        size = program.sequences * program.subsequences * program.stages
        self.done = {"F": [-1.0] * size, "B": [-1.0] * size}  # as in `simulate`; a sequence has one replica
        self.times = times_of(program.stages, program.subsequences, costs, program.ranks)
        self.hosts = [program.host[r, k] for r in range(program.replicas) for k in range(program.stages)]

    def step(self, rank: int, now: float) -> None:
        """What a rank does at a time: its next operation if that can run, or gradients put off, or it waits."""
        each = self.ranks[rank]
        if now < each.free:
            return
        ready = -1.0
        if each.todo:
            op = each.todo[0]
            ready = self.ready(op)
            if 0 <= ready <= now + 1e-12 and not (op.kind == "F" and each.live >= each.most):
                self.take(rank, each, each.todo.popleft(), now)
                return
        if each.late:
            op = each.late.popleft()
            each.free = now + self.times["W", op.stage == self.program.stages - 1][op.subsequence]
            each.row.append(Op("W", op.replica, op.sequence, op.subsequence, op.stage))
            each.live -= 1
            heappush(self.events, (each.free, rank))
        elif ready >= 0:
            heappush(self.events, (ready, rank))

    def take(self, rank: int, each: _Rank, op: Op, now: float) -> None:
        """Does a forward, or the first half of a backward, and tells the rank that waits for it."""
        kind, replica, sequence, part, stage = op.kind, op.replica, op.sequence, op.subsequence, op.stage
        stages = self.program.stages
        forward = kind == "F"
        end = each.free = now + self.times["F" if forward else "I", stage == stages - 1][part]
        self.done[kind][(sequence * self.program.subsequences + part) * stages + stage] = end
        if forward:
            each.row.append(op)
            each.live += 1
        else:
            each.row.append(Op("I", replica, sequence, part, stage))
            each.late.append(op)
        heappush(self.events, (end, rank))
        after = stage + 1 if forward else stage - 1
        if 0 <= after < stages and (other := self.hosts[replica * stages + after]) != rank:
            heappush(self.events, (end, other))

    def ready(self, op: Op) -> float:
        """When what an operation needs from a neighbouring stage is there; -1 where it is not made yet."""
        stages, stage = self.program.stages, op.stage - 1 if op.kind == "F" else op.stage + 1
        if not 0 <= stage < stages:
            return 0.0
        return self.done[op.kind][(op.sequence * self.program.subsequences + op.subsequence) * stages + stage]
