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
from .live import peak_of_row
from .simulate import lengths_of, times_of

#: Sums of shares in another order differ by less.
_NEAR = 1e-9


def late_weights(program: Program, costs: Costs | None = None, *, room: float | None = None) -> Program:
    """The Program with each whole backward in two; where its second half stands follows from the costs.

    Every other operation keeps its place among the others.

    Args:
        room: the tokens of all operations that a rank may hold, in sequences, or as many as it holds in the
            Program where that is more. Without it a rank holds no more operations than there.
    """
    run = _Run(program, costs or Costs(), room)
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
    most: float
    late: deque[Op] = field(default_factory=deque[Op])
    row: list[Op] = field(default_factory=list[Op])
    live: float = 0.0
    free: float = 0.0


class _Run:
    """All ranks in the order of time: what has arrived by now decides what a rank does next."""

    def __init__(self, program: Program, costs: Costs, room: float | None) -> None:
        self.program, parts = program, program.subsequences
        lengths = (1.0,) * parts if room is None else lengths_of(parts, costs) or (1 / parts,) * parts
        self.sizes = lengths
        most = [max(room or 0.0, peak_of_row(row, lengths)) + _NEAR for row in program.order]
        self.ranks = [_Rank(deque(row), most[rank]) for rank, row in enumerate(program.order)]
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
            if 0 <= ready <= now + 1e-12 and not (op.kind == "F" and self.fills(each, op)):
                self.take(rank, each, each.todo.popleft(), now)
                return
        if each.late:
            op = each.late.popleft()
            each.free = now + self.times["W", op.stage == self.program.stages - 1][op.subsequence]
            each.row.append(Op("W", op.replica, op.sequence, op.subsequence, op.stage))
            each.live -= self.sizes[op.subsequence]
            heappush(self.events, (each.free, rank))
        elif ready >= 0:
            heappush(self.events, (ready, rank))

    def fills(self, each: _Rank, forward: Op) -> bool:
        """Whether a rank has no room for a forward."""
        return each.live + self.sizes[forward.subsequence] > each.most

    def take(self, rank: int, each: _Rank, op: Op, now: float) -> None:
        """Does a forward, or the first half of a backward, and tells the rank that waits for it."""
        kind, replica, sequence, part, stage = op.kind, op.replica, op.sequence, op.subsequence, op.stage
        stages = self.program.stages
        forward = kind == "F"
        end = each.free = now + self.times["F" if forward else "I", stage == stages - 1][part]
        self.done[kind][(sequence * self.program.subsequences + part) * stages + stage] = end
        if forward:
            each.row.append(op)
            each.live += self.sizes[part]
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
