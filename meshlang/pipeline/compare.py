"""Every schedule at the same numbers and costs, as rows of a table; and the fastest that fits a memory limit.

Two replicas hold twice the parameters. What they buy has to be weighed against the same parameters
in another form: half the ranks a pipeline, twice the stages on each, data parallel 2 beside it. That
row is always there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from . import orders, v_orders
from .costs import Costs
from .ir import Program
from .late_weights import late_weights
from .notation import program_of
from .sequence_orders import seq1f1b, seq1f1b_interleaved
from .simulate import Timeline, simulate
from .two_replicas import bitpipe, chimera, dualpipe
from .zigzag import bsipipe, seqv

#: What stands beside two replicas.
HALF_DEPTH = "half depth x dp 2"
#: Behind the name of a schedule whose gradients of weights are put off.
LATE = ", late"


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """Ranks, stages a rank and replica, sequences, subsequences."""

    ranks: int
    chunks: int
    sequences: int
    subsequences: int


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to run the numbers: a Program, or why there is none.

    Attributes:
        parameters: copies of a share of the model that each rank holds.
        copies: data parallel copies of the Program, which has as many ranks fewer.
    """

    name: str
    numbers: Numbers
    parameters: int = 1
    copies: int = 1
    make: Callable[[], Program] | None = None
    why_not: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A candidate, and what it comes to; None where it has no Program."""

    candidate: Candidate
    timeline: Timeline | None

    @property
    def peak(self) -> float:
        """The most activations of any rank."""
        return max(self.timeline.peaks) if self.timeline is not None else float("inf")


def candidates(at: Numbers, costs: Costs) -> Iterator[Candidate]:
    """Every schedule at these numbers; whole sequences, and its own stages a rank, where it knows no others."""
    p, v, m, s = at.ranks, at.chunks, at.sequences, at.subsequences
    inner = max(2, v)
    yield _of("gpipe", at, 1, 1, lambda: program_of(orders.gpipe(p, m)))
    yield _of("1f1b", at, 1, 1, lambda: program_of(orders.one_f_one_b(p, m)))
    rounds = "microbatches do not divide into rounds" if m % max(1, m // p) else ""
    yield _of("interleaved_1f1b", at, inner, 1, lambda: program_of(orders.interleaved(p, inner, m)), rounds)
    yield _of(
        "interleaved_zero_bubble", at, inner, 1, lambda: program_of(orders.interleaved_zero_bubble(p, inner, m)), rounds
    )
    yield _of("zbv", at, 2, 1, lambda: program_of(v_orders.zbv(p, m)))
    few = f"needs {2 * p} microbatches" if m < 2 * p else ""
    yield _of("dualpipev", at, 2, 1, lambda: program_of(v_orders.dualpipev(p, m)), few)
    odd = "needs an even number of ranks" if p % 2 else ""
    halves = odd or ("needs an even number of microbatches" if m % 2 else "")
    yield _of("chimera", at, 1, 1, lambda: chimera(p, m), odd, replicas=2)
    yield _of("dualpipe", at, 1, 1, lambda: dualpipe(p, m), halves or few, replicas=2)
    units = odd or ("needs whole units of microbatches" if m % p else "")
    yield _of("bitpipe", at, 2, 1, lambda: bitpipe(p, m), units, replicas=2)
    yield _of("seq1f1b", at, 1, s, lambda: seq1f1b(p, m, s))
    yield _of("seq1f1b_interleaved", at, inner, s, lambda: seq1f1b_interleaved(p, inner, m, s))
    even = v + v % 2
    yield from _and_late(_of("seqv", at, even, s, lambda: seqv(p, even, m, s)), costs)
    yield from _and_late(_of("bsipipe", at, v, s, lambda: bsipipe(p, v, m, s), halves, replicas=2), costs)
    half = Numbers(ranks=p // 2, chunks=2 * v, sequences=m // 2, subsequences=s)
    beside = _of(HALF_DEPTH, half, 2 * v, s, lambda: seqv(p // 2, 2 * v, m // 2, s), halves, replicas=2)
    yield from _and_late(replace(beside, copies=2), replace(costs, shares=p))


def _and_late(candidate: Candidate, costs: Costs) -> Iterator[Candidate]:
    """The same, and with gradients of weights put off."""
    yield candidate
    make = candidate.make
    late = None if make is None else lambda: late_weights(make(), costs)
    yield replace(candidate, name=candidate.name + LATE, make=late)


def _of(
    name: str, at: Numbers, chunks: int, parts: int, make: Callable[[], Program], why_not: str = "", replicas: int = 1
) -> Candidate:
    numbers = replace(at, chunks=chunks, subsequences=parts)
    return Candidate(name=name, numbers=numbers, parameters=replicas, make=None if why_not else make, why_not=why_not)


def compared(at: Numbers, costs: Costs) -> list[Row]:
    """All candidates, in their order, simulated."""
    return [row_of(each, costs, at.ranks) for each in candidates(at, costs)]


def row_of(candidate: Candidate, costs: Costs, ranks: int) -> Row:
    """What a candidate comes to; times are of one sequence on one of `ranks` shares of the model."""
    if candidate.make is None:
        return Row(candidate=candidate, timeline=None)
    timeline = simulate(candidate.make(), replace(costs, shares=ranks), copies=candidate.copies)
    return Row(candidate=candidate, timeline=timeline)


def fitting(
    at: Numbers, costs: Costs, limit: float, *, state: float = 0.0, stages: int, parts: Iterable[int]
) -> list[Row]:
    """What stays under a memory limit, fastest first, equals by their memory; chunks and subsequences are free.

    Args:
        limit: of activations and state, in units of one sequence's activations on a share of the model.
        state: what one copy of a share's parameters, gradients and moments takes, in the same units.
        stages: the most that the model can be cut into.
        parts: numbers of subsequences to try.
    """
    seen: set[tuple[str, Numbers]] = set()
    rows: list[Row] = []
    for s in sorted(set(parts)):
        for v in range(1, max(2, min(4, stages // at.ranks) + 1)):
            for each in candidates(replace(at, chunks=v, subsequences=s), costs):
                key = each.name, each.numbers
                if key in seen or each.numbers.ranks * each.numbers.chunks > stages:
                    continue
                seen.add(key)
                rows.append(row_of(each, costs, at.ranks))
    fits = [row for row in rows if row.timeline is not None and memory(row, state) <= limit + 1e-9]
    return sorted(fits, key=lambda row: (round(row.timeline.makespan, 9) if row.timeline else 0, memory(row, state)))


def memory(row: Row, state: float) -> float:
    """Activations and state of the fullest rank."""
    return row.peak + state * row.candidate.parameters
