"""Programs that values are held on, by name; and random ones."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from meshlang.pipeline.costs import Costs
from meshlang.pipeline.held import held, late
from meshlang.pipeline.ir import Host, Op, Program
from meshlang.pipeline.sequence_orders import seq1f1b, seq1f1b_interleaved
from meshlang.pipeline.two_replicas import bitpipe, chimera, dualpipe
from meshlang.pipeline.zigzag import bsipipe, seqv, uneven_bsipipe

#: Whether all cases run, and not only a sample.
ALL = bool(os.environ.get("MESHLANG_PARITY"))


@dataclass(frozen=True)
class Named:
    """A schedule with its numbers."""

    schedule: str
    ranks: int
    chunks: int
    sequences: int
    subsequences: int

    def __str__(self) -> str:
        return f"{self.schedule}-p{self.ranks}-v{self.chunks}-m{self.sequences}-s{self.subsequences}"

    def program(self) -> Program:
        """As data."""
        return _MAKE[self.schedule](self)


_MAKE: dict[str, Callable[[Named], Program]] = {
    "seq1f1b": lambda n: seq1f1b(n.ranks, n.sequences, n.subsequences),
    "seq1f1b_interleaved": lambda n: seq1f1b_interleaved(n.ranks, n.chunks, n.sequences, n.subsequences),
    "seqv": lambda n: seqv(n.ranks, n.chunks, n.sequences, n.subsequences),
    "bsipipe": lambda n: bsipipe(n.ranks, n.chunks, n.sequences, n.subsequences),
    "bsipipe_uneven": lambda n: uneven_bsipipe(n.ranks, n.chunks, n.sequences, n.subsequences),
    "bsipipe_spaced": lambda n: late(
        n.ranks, n.chunks, n.sequences, n.subsequences, replicas=2, hold=True, costs=Costs(attention=0.4)
    ),
    "bsipipe_held": lambda n: held(n.ranks, n.chunks, n.sequences, n.subsequences, replicas=2),
    "bitpipe": lambda n: bitpipe(n.ranks, n.sequences),
    "dualpipe": lambda n: dualpipe(n.ranks, n.sequences),
    "chimera": lambda n: chimera(n.ranks, n.sequences),
}

SAMPLE = (
    Named("seq1f1b", 2, 1, 2, 3),
    Named("seq1f1b_interleaved", 2, 2, 2, 2),
    Named("seqv", 2, 2, 2, 2),
    Named("bsipipe", 2, 3, 2, 2),
    Named("bsipipe", 4, 2, 4, 2),
    Named("bitpipe", 2, 2, 2, 1),
    Named("dualpipe", 2, 1, 4, 1),
    Named("chimera", 4, 1, 4, 1),
    Named("bsipipe_uneven", 6, 2, 3, 2),
    Named("bsipipe_uneven", 10, 2, 4, 3),
    Named("bsipipe_held", 6, 2, 2, 2),
    Named("bsipipe_spaced", 6, 2, 4, 2),
)


def every() -> Iterator[Named]:
    """p of 2, 4, 6, 8; v of 1, 2, 3; s of 1 to 4; each schedule where it has these numbers."""
    for p in (2, 4, 6, 8):
        for s in (1, 2, 3, 4):
            yield Named("seq1f1b", p, 1, 2, s)
            for v in (1, 2, 3):
                yield Named("bsipipe", p, v, 2, s)
                if v > 1:
                    yield Named("seq1f1b_interleaved", p, v, p, s)
            yield Named("seqv", p, 2, 2, s)
        yield from (Named("bitpipe", p, 2, p, 1), Named("dualpipe", p, 1, 2 * p, 1), Named("chimera", p, 1, p, 1))


def cases() -> list[Named]:
    """The sample, and the rest where it is asked for."""
    return [*SAMPLE, *(named for named in every() if ALL and named not in SAMPLE)]


def in_halves(program: Program, late: int) -> Program:
    """The same, each backward in two: the gradients of weights `late` operations after those of the input."""
    rows = []
    for row in program.order:
        found: list[Op] = []
        waiting: list[tuple[int, Op]] = []
        for place, op in enumerate(row):
            found.append(replace(op, kind="I") if op.kind == "B" else op)
            if op.kind == "B":
                waiting.append((place + late, replace(op, kind="W")))
            found += [weights for due, weights in waiting if due <= place]
            waiting = [(due, weights) for due, weights in waiting if due > place]
        rows.append((*found, *(weights for _, weights in reversed(waiting))))
    return replace(program, order=tuple(rows))


def scrambled(seed: int) -> Program:
    """A Program of random sizes, places of stages, and order: any order in which what is needed is there.

    One operation at a time is drawn from those that could be next, so that the order as a whole
    could be run by one process; each rank's order is its part of it.
    """
    draw = random.Random(seed)
    ranks, stages, replicas = draw.randint(2, 5), draw.randint(1, 6), draw.randint(1, 2)
    sequences, subsequences = draw.randint(1, 4), draw.randint(1, 3)
    hosts = tuple(Host(r, k, draw.randrange(ranks)) for r in range(replicas) for k in range(stages))
    program = Program(
        ranks=ranks,
        stages=stages,
        replicas=replicas,
        sequences=sequences,
        subsequences=subsequences,
        hosts=hosts,
        order=(),
    )
    left = [
        Op(kind, sequence % replicas, sequence, sub, stage)
        for kind in ("F", "B")
        for sequence in range(sequences)
        for sub in range(subsequences)
        for stage in range(stages)
    ]
    done, rows = set[Op](), [list[Op]() for _ in range(ranks)]
    while left:
        op = draw.choice([op for op in left if needs(op, program) <= done])
        left.remove(op)
        done.add(op)
        rows[program.host[op.replica, op.stage]].append(op)
    return replace(program, order=tuple(map(tuple, rows)))


def needs(op: Op, program: Program) -> set[Op]:
    """What is done before an operation: of its neighbouring stage, its neighbouring subsequence, its own forward."""
    step = -1 if op.kind == "F" else 1
    found = {replace(op, stage=op.stage + step), replace(op, subsequence=op.subsequence + step)}
    found = {each for each in found if 0 <= each.stage < program.stages}
    found = {each for each in found if 0 <= each.subsequence < program.subsequences}
    return found | ({replace(op, kind="F")} if op.kind == "B" else set())
