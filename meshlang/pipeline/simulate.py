"""When each operation of a Program starts and ends under given costs: event by event, ranks in any order.

A rank takes its operations in order, each as soon as what it needs has arrived. Messages of a
directed pair of ranks follow each other on its link while ranks compute. Gradients of two copies
of a stage are summed beside the computing, for each pair of ranks in the order last stage to first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from .costs import Costs, shares
from .ir import Program
from .live import peak_activations

#: (kind, stage) -> the time of each subsequence.
Times = Mapping[tuple[str, int], tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """What a simulation gives.

    Attributes:
        starts, ends: of each operation, for each rank in its order.
        computed: when the last operation ends.
        makespan: when all is done, sums of gradients too.
        busy: for each rank the time that it computes.
        peaks: for each rank the most activations, in units of one sequence on a share of the model.
        tokens: share of a sequence's tokens in each subsequence.
    """

    starts: tuple[tuple[float, ...], ...]
    ends: tuple[tuple[float, ...], ...]
    computed: float
    makespan: float
    busy: tuple[float, ...]
    peaks: tuple[float, ...]
    tokens: tuple[float, ...]

    @property
    def bubble(self) -> float:
        """Share of all ranks' time in which they do not compute."""
        return 1 - sum(self.busy) / (len(self.busy) * self.makespan) if self.makespan else 0.0

    @property
    def exposed(self) -> float:
        """Time in which nothing is left but sums of gradients."""
        return self.makespan - self.computed


def simulate(program: Program, costs: Costs | None = None, *, copies: int = 1, times: Times | None = None) -> Timeline:
    """The times of a Program that comes to its end.

    Args:
        copies: data parallel copies of the whole pipeline, on ranks of their own beside it: their
            gradients are summed stage by stage too.
        times: of operations, where stages differ; else all are equal but for the head, as `costs` says.
    """
    costs = costs or Costs()
    run = _Run(program, costs, times or _alike(program, costs))
    queue, queued = deque(range(program.ranks)), [True] * program.ranks
    while queue:
        rank = queue.popleft()
        queued[rank] = False
        for other in run.go_on(rank):
            if not queued[other]:
                queued[other] = True
                queue.append(other)
    assert all(len(ends) == len(row) for ends, row in zip(run.ends, program.order, strict=True)), "a deadlock"
    computed = max((ends[-1] for ends in run.ends if ends), default=0.0)
    return Timeline(
        starts=tuple(map(tuple, run.starts)),
        ends=tuple(map(tuple, run.ends)),
        computed=computed,
        makespan=max(computed, _summed(run, copies)),
        busy=tuple(
            sum(b - a for a, b in zip(starts, ends, strict=True))
            for starts, ends in zip(run.starts, run.ends, strict=True)
        ),
        peaks=peak_activations(program, lengths=lengths_of(program.subsequences, costs), shares=costs.shares),
        tokens=run.parts,
    )


def lengths_of(subsequences: int, costs: Costs) -> tuple[float, ...] | None:
    """Share of a sequence's tokens in each subsequence; None where they are equal, and sums of them whole numbers."""
    return None if costs.is_even(subsequences) else shares(costs.ends(subsequences))[0]


@dataclass
class _Run:
    program: Program
    costs: Costs
    times: Times
    starts: list[list[float]] = field(default_factory=list[list[float]])
    ends: list[list[float]] = field(default_factory=list[list[float]])

    def __post_init__(self) -> None:
        program, costs = self.program, self.costs
        self.starts = [[] for _ in range(program.ranks)]
        self.ends = [[] for _ in range(program.ranks)]
        self.hosts = [program.host[r, k] for r in range(program.replicas) for k in range(program.stages)]
        size = program.sequences * program.subsequences * program.stages
        self.arrived = {"F": [-1.0] * size, "B": [-1.0] * size}
        self.free = [0.0] * (program.ranks * program.ranks)
        self.links = [
            costs.link(a, b) if costs.latency or costs.transfer or costs.ranks_per_node else None
            for a in range(program.ranks)
            for b in range(program.ranks)
        ]
        self.parts = shares(costs.ends(program.subsequences))[0]

    def go_on(self, rank: int) -> set[int]:
        """Takes a rank's operations as far as it can; gives the ranks that were sent something."""
        program, row, starts, ends = self.program, self.program.order[rank], self.starts[rank], self.ends[rank]
        stages, parts, last = program.stages, program.subsequences, program.stages - 1
        now = ends[-1] if ends else 0.0
        woken: set[int] = set()
        for at in range(len(ends), len(row)):
            op = row[at]
            kind, stage = op.kind, op.stage
            step, arrived = (1, self.arrived["F"]) if kind == "F" else (-1, self.arrived["B"])
            index = (op.sequence * parts + op.subsequence) * stages + stage
            if kind != "W" and stage != (0 if step == 1 else last):
                came = arrived[index - step]
                if came < 0:
                    break
                now = max(now, came)
            starts.append(now)
            now += self.times[kind, stage][op.subsequence]
            ends.append(now)
            if kind != "W":
                arrived[index] = now
                if stage != (last if step == 1 else 0):
                    other = self.hosts[op.replica * stages + stage + step]
                    if other != rank:
                        woken.add(other)
                        arrived[index] = self.sent(rank, other, op.subsequence, now)
        return woken

    def sent(self, rank: int, other: int, subsequence: int, now: float) -> float:
        """When a message that is made now arrives."""
        line = rank * self.program.ranks + other
        link = self.links[line]
        if link is None:
            return now
        free = max(self.free[line], now) + link[1] * self.parts[subsequence]
        self.free[line] = free
        return free + link[0]


def _alike(program: Program, costs: Costs) -> Times:
    """Of equal stages, the head beside the last."""
    last = program.stages - 1
    equal = times_of(program.stages, program.subsequences, costs, program.ranks)
    return {(kind, stage): equal[kind, stage == last] for kind in "FBIW" for stage in range(program.stages)}


def times_of(stages: int, subsequences: int, costs: Costs, ranks: int) -> dict[tuple[str, bool], tuple[float, ...]]:
    """(kind, of the last stage) -> the time of each subsequence; the model is `costs.shares` shares, or one a rank."""
    stage = costs.forward * (costs.shares or ranks) / stages
    tokens, pairs = shares(costs.ends(subsequences))
    inner, rest = costs.attention, 1 - costs.attention
    found: dict[tuple[str, bool], tuple[float, ...]] = {}
    for kind, dense, attention in (
        ("F", 1.0, 1.0),
        ("B", costs.backward, costs.attention_backward),
        ("I", costs.backward * (1 - costs.weights), costs.attention_backward),
        ("W", costs.backward * costs.weights, 0.0),
    ):
        each = [stage * (rest * dense * n + inner * attention * k) for n, k in zip(tokens, pairs, strict=True)]
        head = [costs.head * dense * n for n in tokens]
        found[kind, False] = tuple(each)
        found[kind, True] = tuple(a + b for a, b in zip(each, head, strict=True))
    return found


def _summed(run: _Run, copies: int) -> float:
    """When the gradients of all stages are summed over their copies."""
    program, costs = run.program, run.costs
    if program.replicas * copies == 1 or not (costs.sync or costs.sync_between):
        return 0.0
    ready = _last_backwards(run)
    share, host = (costs.shares or program.ranks) / program.stages, program.host
    free: dict[tuple[int, int], float] = {}
    for stage in range(program.stages - 1, -1, -1):
        ranks = sorted({host[r, stage] for r in range(program.replicas)})
        pair = ranks[0], ranks[-1]
        done = [ready[r, stage] if costs.eager else run.ends[host[r, stage]][-1] for r in range(program.replicas)]
        free[pair] = max(free.get(pair, 0.0), *done) + share * costs.sum_of(*pair)
    return max(free.values())


def _last_backwards(run: _Run) -> dict[tuple[int, int], float]:
    """(replica, stage) -> when its gradients are complete."""
    found: dict[tuple[int, int], float] = {}
    for row, ends in zip(run.program.order, run.ends, strict=True):
        for op, end in zip(row, ends, strict=True):
            if op.kind in "BW":
                found[op.replica, op.stage] = end
    return found
