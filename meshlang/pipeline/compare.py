"""Every schedule at the same numbers and costs, as rows of a table.

Two replicas hold twice the parameters. What they buy has to be weighed against the same parameters
in another form: half the ranks a pipeline, twice the stages on each, data parallel 2 beside it. That
row is always there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from . import orders, sequence_orders, v_orders, zigzag
from .costs import Costs
from .held import filled, late
from .ir import Op, Program
from .late_weights import late_weights
from .limits import is_late
from .notation import program_of
from .sequence_orders import seq1f1b, seq1f1b_interleaved
from .simulate import Timeline, simulate
from .two_replicas import bitpipe, chimera, dualpipe
from .zigzag import bsipipe, can_be_uneven, seqv, uneven_bsipipe

#: What stands beside two replicas.
HALF_DEPTH = "half depth x dp 2"
#: Behind the name of a schedule whose gradients of weights are put off.
LATE = ", late"
#: The same at no more activations than Seq1F1B's; beside it where units are not whole, or hold less.
HELD = ", held"
#: BSIPipe with more sequences one way, where more of them fit into a period so.
UNEVEN = ", uneven"


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
        late: gradients of weights are put off.
        halves: some backwards are in halves, or all where they are put off.
        place: how stages lie on ranks: over and over, to the last and back, or so from both ends; None: not known.
        first: what rank 0 does, where that is made without the other ranks.
    """

    name: str
    numbers: Numbers
    parameters: int = 1
    copies: int = 1
    make: Callable[[], Program] | None = None
    why_not: str = ""
    late: bool = False
    halves: bool = False
    place: Literal["loop", "v", "both"] | None = None
    first: Callable[[], Sequence[Op]] | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """A candidate, and what it comes to; None where it has no Program."""

    candidate: Candidate
    timeline: Timeline | None

    @property
    def peak(self) -> float:
        """The most activations of any rank."""
        return max(self.timeline.peaks) if self.timeline is not None else float("inf")


def candidates(at: Numbers, costs: Costs | None = None) -> Iterator[Candidate]:
    """Every schedule at these numbers; whole sequences, and its own stages a rank, where it knows no others."""
    costs = costs or Costs()
    yield from _of_torch(at)
    yield from _of_whole_sequences(at)
    yield from _of_subsequences(at, replace(costs, shares=costs.shares or at.ranks))


def _of_torch(at: Numbers) -> Iterator[Candidate]:
    p, m, inner = at.ranks, at.sequences, max(2, at.chunks)
    yield _of("gpipe", at, 1, 1, lambda: program_of(orders.gpipe(p, m)))
    yield _of("1f1b", at, 1, 1, lambda: program_of(orders.one_f_one_b(p, m)))
    rounds = "microbatches do not divide into rounds" if m % max(1, m // p) else ""
    yield _of("interleaved_1f1b", at, inner, 1, lambda: program_of(orders.interleaved(p, inner, m)), rounds)
    bubble = _of(
        "interleaved_zero_bubble", at, inner, 1, lambda: program_of(orders.interleaved_zero_bubble(p, inner, m)), rounds
    )
    yield replace(bubble, halves=True)
    zbv = _of("zbv", at, 2, 1, lambda: program_of(v_orders.zbv(p, m)))
    dual = _of("dualpipev", at, 2, 1, lambda: program_of(v_orders.dualpipev(p, m)), _few(at))
    yield from (replace(each, halves=True, place="v") for each in (zbv, dual))


def _of_whole_sequences(at: Numbers) -> Iterator[Candidate]:
    p, m = at.ranks, at.sequences
    yield _of("chimera", at, 1, 1, lambda: chimera(p, m), _odd(at), replicas=2)
    dual = _of("dualpipe", at, 1, 1, lambda: dualpipe(p, m), _halved(at) or _few(at), replicas=2)
    yield replace(dual, halves=True)
    units = _odd(at) or ("needs whole units of microbatches" if m % p else "")
    yield _of("bitpipe", at, 2, 1, lambda: bitpipe(p, m), units, replicas=2)


def _of_subsequences(at: Numbers, costs: Costs) -> Iterator[Candidate]:
    p, v, m, s = at.ranks, at.chunks, at.sequences, at.subsequences
    inner, even = max(2, v), v + v % 2
    plain = _of("seq1f1b", at, 1, s, lambda: seq1f1b(p, m, s))
    yield replace(plain, first=lambda: sequence_orders.row_of(0, p, 1, m, s))
    looped = _of("seq1f1b_interleaved", at, inner, s, lambda: seq1f1b_interleaved(p, inner, m, s))
    yield replace(looped, first=lambda: sequence_orders.row_of(0, p, inner, m, s))
    yield from _zigzag(_of("seqv", at, even, s, lambda: seqv(p, even, m, s)), costs)
    yield from _zigzag(_of("bsipipe", at, v, s, lambda: bsipipe(p, v, m, s), _halved(at), replicas=2), costs)
    if can_be_uneven(p, v, s):
        few = "needs 2 microbatches" if m < 2 else ""
        uneven = _of("bsipipe" + UNEVEN, at, v, s, lambda: uneven_bsipipe(p, v, m, s), few, replicas=2)
        make = None if few else lambda: filled(uneven_bsipipe(p, v, m, s), costs)
        yield from (uneven, replace(uneven, name=uneven.name + LATE, late=True, halves=True))
        yield replace(uneven, name=uneven.name + HELD, make=make, halves=True)
    half = Numbers(ranks=p // 2, chunks=2 * v, sequences=m // 2, subsequences=s)
    beside = _of(HALF_DEPTH, half, 2 * v, s, lambda: seqv(p // 2, 2 * v, m // 2, s), _halved(at), replicas=2)
    yield from _zigzag(replace(beside, copies=2), costs)


def _few(at: Numbers) -> str:
    return f"needs {2 * at.ranks} microbatches" if at.sequences < 2 * at.ranks else ""


def _odd(at: Numbers) -> str:
    return "needs an even number of ranks" if at.ranks % 2 else ""


def _halved(at: Numbers) -> str:
    return _odd(at) or ("needs an even number of microbatches" if at.sequences % 2 else "")


def _zigzag(candidate: Candidate, costs: Costs) -> Iterator[Candidate]:
    """A schedule of stages that go back, and the same with gradients of weights put off."""
    at, replicas = candidate.numbers, candidate.parameters // candidate.copies
    found = replace(
        candidate,
        place="v" if replicas == 1 else "both",
        first=lambda: zigzag.row_of(0, replicas=replicas, **vars(at)),
    )
    yield found
    yield replace(found, name=candidate.name + LATE, late=True, halves=True)
    if not is_late(max(at.ranks, replicas), at.chunks, at.subsequences, replicas=replicas, shares=costs.shares):
        make = None if candidate.make is None else lambda: late(**vars(at), replicas=replicas, hold=True, costs=costs)
        yield replace(found, name=candidate.name + HELD, make=make, halves=True, first=None)


def _of(
    name: str, at: Numbers, chunks: int, parts: int, make: Callable[[], Program], why_not: str = "", replicas: int = 1
) -> Candidate:
    return Candidate(
        name=name,
        numbers=replace(at, chunks=chunks, subsequences=parts),
        parameters=replicas,
        make=None if why_not else make,
        why_not=why_not,
        place="loop" if replicas == 1 else "both",
    )


def own(name: str, program: Program) -> Candidate:
    """A Program that is there, as a row beside the others."""
    numbers = Numbers(
        ranks=program.ranks,
        chunks=program.stages // program.ranks,
        sequences=program.sequences,
        subsequences=program.subsequences,
    )
    return Candidate(name=name, numbers=numbers, parameters=program.replicas, make=lambda: program)


def beside(mine: Candidate, costs: Costs | None = None) -> list[Candidate]:
    """All candidates at the numbers of a spec's own; it stands in its place where it is one of them, else first."""
    rows = list(candidates(mine.numbers, costs))
    known = [(each.name, each.numbers) for each in rows]
    if (mine.name, mine.numbers) not in known:
        return [mine, *rows]
    rows[known.index((mine.name, mine.numbers))] = mine
    return rows


def compared(mine: Candidate, costs: Costs, tick: Callable[[], None] = lambda: None) -> list[Row]:
    """The spec's own and all beside it, simulated; `tick` is called after each."""
    found: list[Row] = []
    for each in beside(mine, replace(costs, shares=mine.numbers.ranks)):
        found.append(row_of(each, costs, mine.numbers.ranks))
        tick()
    return found


def row_of(candidate: Candidate, costs: Costs, ranks: int) -> Row:
    """What a candidate comes to; times are of one sequence on one of `ranks` shares of the model."""
    if candidate.make is None:
        return Row(candidate=candidate, timeline=None)
    return simulated(candidate, candidate.make(), replace(costs, shares=ranks))


def simulated(candidate: Candidate, program: Program, costs: Costs) -> Row:
    """The row of a candidate whose Program is made; its gradients of weights are put off here."""
    program = late_weights(program, costs) if candidate.late else program
    return Row(candidate=candidate, timeline=simulate(program, costs, copies=candidate.copies))


def memory(row: Row, state: float) -> float:
    """Activations and state of the fullest rank."""
    return row.peak + state * row.candidate.parameters
