"""The fastest schedules that fit a memory limit: bounds first, and only what may win is simulated.

No Program ends before its bound, and none holds less. So candidates are taken by their bounds, the
lowest first, until as many as are asked for are at least as fast as the next bound.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..garbage import uncollected
from .compare import Candidate, Numbers, Row, candidates, memory, simulated
from .costs import Costs
from .ir import Program
from .live import peak_activations, peak_of_row
from .simulate import lengths_of, times_of
from .zigzag import rank_of

#: Sums of times in another order differ by less.
_NEAR = 1e-9


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is looked for.

    Attributes:
        limit: of activations and state, in units of one sequence's activations on a share of the model.
        state: what one copy of a share's parameters, gradients and moments takes, in the same units.
        stages: the most that the model can be cut into.
        parts: numbers of subsequences to try.
        most: rows that are wanted.
    """

    limit: float
    state: float = 0.0
    stages: int
    parts: tuple[int, ...]
    most: int = 8


@dataclass(frozen=True, kw_only=True)
class Least:
    """The candidate that holds least, and what it holds, in the unit of the limit."""

    memory: float
    candidate: Candidate


def fitting(mine: Candidate, costs: Costs, search: Search, tick: Callable[[], None] = lambda: None) -> list[Row]:
    """What stays under the limit, fastest first, equals by their memory; chunks and subsequences are free.

    Args:
        mine: the spec's own; its ranks and sequences are everyone's.
        tick: called for each of `tried`, when it is simulated or passed over.
    """
    costs = replace(costs, shares=mine.numbers.ranks)
    order = sorted((least_time(each, costs), place, each) for place, each in enumerate(tried(mine, search, costs)))
    best: list[tuple[float, float, int]] = []
    rows: dict[int, Row] = {}
    for bound, place, each in order:
        tick()
        if len(best) >= search.most and bound > best[search.most - 1][0] + _NEAR:
            continue
        with uncollected():
            row = _within(each, costs, search)
        if row is not None and row.timeline is not None:
            rows[place] = row
            insort(best, (round(row.timeline.makespan, 9), memory(row, search.state), place))
    return [rows[place] for *_, place in best[: search.most]]


def least(mine: Candidate, costs: Costs, search: Search, tick: Callable[[], None] = lambda: None) -> Least:
    """What holds least of all that is tried, whatever the limit."""
    costs = replace(costs, shares=mine.numbers.ranks)
    order = sorted((_held_at_least(e, costs, search.state), at, e) for at, e in enumerate(tried(mine, search, costs)))
    best: Least | None = None
    for bound, _, each in order:
        tick()
        if best is None or bound < best.memory - _NEAR:
            with uncollected():
                held = _peak(each, costs) + search.state * each.parameters
            best = Least(memory=held, candidate=each) if best is None or held < best.memory - _NEAR else best
    assert best is not None
    return best


def tried(mine: Candidate, search: Search, costs: Costs | None = None) -> list[Candidate]:
    """Each candidate of each number of subsequences and stages once, and the spec's own."""
    found: dict[tuple[str, Numbers], Candidate] = {}
    at = mine.numbers
    for s in sorted(set(search.parts)):
        for v in range(1, max(2, min(4, search.stages // at.ranks) + 1)):
            for each in candidates(replace(at, chunks=v, subsequences=s), costs):
                if each.make is not None and each.numbers.ranks * each.numbers.chunks <= search.stages:
                    found.setdefault((each.name, each.numbers), each)
    found[mine.name, mine.numbers] = mine
    return list(found.values())


def _within(candidate: Candidate, costs: Costs, search: Search) -> Row | None:
    """The row of a candidate; None where it is over the limit, which its operations tell before their times do.

    What puts off gradients of weights holds as much at its peak as it would with whole backwards.
    """
    assert candidate.make is not None
    room = search.limit + _NEAR - search.state * candidate.parameters
    if candidate.first is not None and _held_first(candidate, costs) > room:
        return None
    program = candidate.make()
    return simulated(candidate, program, costs) if _peak_of(program, costs) <= room else None


def _held_at_least(candidate: Candidate, costs: Costs, state: float) -> float:
    """Memory that a candidate has at least, told without making it."""
    return state * candidate.parameters + (_held_first(candidate, costs) if candidate.first is not None else 0.0)


def _peak(candidate: Candidate, costs: Costs) -> float:
    assert candidate.make is not None
    return _peak_of(candidate.make(), costs)


def _peak_of(program: Program, costs: Costs) -> float:
    """The most activations of any rank."""
    return max(peak_activations(program, lengths=lengths_of(program.subsequences, costs), shares=costs.shares))


def _held_first(candidate: Candidate, costs: Costs) -> float:
    """The most activations of rank 0, in the unit of `peak_activations`; the fullest rank has no less."""
    assert candidate.first is not None
    assert costs.shares is not None
    at = candidate.numbers
    lengths = lengths_of(at.subsequences, costs)
    unit = costs.shares / (at.ranks * at.chunks)
    if lengths is None:
        return peak_of_row(candidate.first(), [1.0] * at.subsequences) * unit / at.subsequences
    return peak_of_row(candidate.first(), lengths) * unit


def least_time(candidate: Candidate, costs: Costs) -> float:
    """A time before which no rank can be done, whatever the order.

    A rank's first operation is a forward, of a sequence's first subsequence, behind those of the stages
    before; behind its last whole backward stand the backwards of the same stages. In between it
    computes all that it has. Where backwards are in halves, gradients of weights may come last.
    """
    if candidate.place is None:
        return 0.0
    at, replicas = candidate.numbers, candidate.parameters // candidate.copies
    stages, last = at.ranks * at.chunks, at.ranks * at.chunks - 1
    times = times_of(stages, at.subsequences, costs, at.ranks)
    work = {key: sum(each) * at.sequences / replicas for key, each in times.items()}
    link = costs.least_link
    hop = link[0] + link[1] * min(lengths_of(at.subsequences, costs) or [1 / at.subsequences])
    found = 0.0
    for held in _held(candidate, replicas, stages):
        before = min(held)
        there, back = (before * (times[kind, False][0] + hop) for kind in "FI")
        forward, whole, inputs = (sum(work[kind, stage == last] for stage in held) for kind in "FBI")
        if candidate.halves:
            found = max(found, there + forward + whole, there + forward + inputs + back)
        else:
            found = max(found, there + forward + whole + before * (times["B", False][0] + hop))
    return found


def _held(candidate: Candidate, replicas: int, stages: int) -> list[list[int]]:
    """For each rank its stages, those of the second replica too."""
    ranks, looped = candidate.numbers.ranks, candidate.place == "loop"
    found: list[list[int]] = [[] for _ in range(ranks)]
    for replica in range(replicas):
        for stage in range(stages):
            found[stage % ranks if looped else rank_of(stage, ranks, replica)].append(stage)
    return found
