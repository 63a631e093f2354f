"""Every candidate for so many ranks: the sizes that divide, and what the language and its schedules ask of them.

    tp          inside a node, a divisor of every name that it cuts; with the sequence cut too, or not
    cp, block   each rank keeps `LEAST_TOKENS` of a sequence at least; each strategy over it
    store       none (every rank all state), all ranks of the batch, or copies on whole nodes each; weights freed or
                kept after a forward
    pp          with `SCHEDULES`, a microbatch for each stage at least, or as many subsequences, and two layers a stage
    passes      `MOST_TOKENS` a rank and pass, or one sequence
    recompute   no layer, or all

Nothing here guesses: that a name divides is the card's, what else stands against a cut the compiler says (`probe`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import isqrt

from .candidate import Candidate, Cut, Store
from .shape import Shape

#: Tokens of a sequence that are worth a rank of an axis that cuts it.
LEAST_TOKENS = 4096
#: Tokens that a rank takes in one pass, where it is more than one sequence.
MOST_TOKENS = 65_536
#: Forward-backwards, or microbatches, of a step.
MOST_PASSES = 256
#: Modules of a model's split that are worth a stage.
LEAST_MODULES = 2
#: Tokens of a denoised block, where nobody says.
BLOCK_SIZE = 32
#: Strategies over a cut sequence.
EXCHANGES = ("all_gather_attention", "ring_attention", "ulysses")
#: Name, stages a rank, subsequences.
SCHEDULES = (
    ("1f1b", 1, 1),
    ("interleaved_1f1b", 2, 1),
    ("interleaved_1f1b", 4, 1),
    ("zbv", 2, 1),
    ("seq1f1b", 1, 2),
    ("seq1f1b", 1, 4),
)
#: Those that compute gradients of weights apart, in passes that a recomputed forward would have to run in twice.
HALVES = ("zbv",)


@dataclass(frozen=True, kw_only=True)
class Run:
    """What is asked for: so many ranks in nodes, sequences a step, tokens each."""

    ranks: int
    ranks_per_node: int
    batch: int
    seq: int
    block_sizes: tuple[int, ...] = (BLOCK_SIZE,)


def divisors(number: int) -> list[int]:
    """In order."""
    small = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
    return [*small, *(number // n for n in reversed(small) if n * n != number)]


def cuts(shape: Shape, run: Run) -> Iterator[Cut]:
    """Every way to cut layers."""
    for tp in _tensor(shape, run):
        for sequence in (False, True) if tp > 1 and shape.runs("seq") and run.seq % tp == 0 else (False,):
            if shape.streams:
                yield from _blocks(run, tp, sequence)
                continue
            yield Cut(tp=tp, sequence=sequence)
            inner = tp if sequence else 1
            for cp in _context(run, tp) if shape.runs("seq") else ():
                if run.seq % (2 * cp * inner) == 0:
                    yield from (Cut(tp=tp, sequence=sequence, cp=cp, exchange=each) for each in EXCHANGES)


def _tensor(shape: Shape, run: Run) -> list[int]:
    node = min(run.ranks, run.ranks_per_node)
    sizes = [shape.model.sizes[name] for name in shape.cut]
    fits = [n for n in divisors(node) if run.ranks % n == 0 and all(size % n == 0 for size in sizes)]
    return fits if sizes else [1]


def _context(run: Run, tp: int) -> list[int]:
    most = run.seq // LEAST_TOKENS
    return [n for n in divisors(run.ranks // tp) if 1 < n <= most]


def _blocks(run: Run, tp: int, sequence: bool) -> Iterator[Cut]:
    """Of two streams: the size of the axis, the ranks that share a clean stream, the size of a block."""
    for size in run.block_sizes:
        for ranks in (1, *_context(run, tp)):
            inner = tp if sequence else 1
            even = run.seq % size == 0 and run.seq % (2 * ranks * inner) == 0
            blocks = run.seq // max(size, 1)
            if not even or blocks < ranks or (tp > 1 and blocks % ranks):
                continue
            for context in divisors(ranks):
                yield Cut(tp=tp, sequence=sequence, cp=ranks, exchange="csbp", context=context, block_size=size)


def candidates(shape: Shape, run: Run, cut: Cut) -> Iterator[Candidate]:
    """Every candidate with this cut."""
    left = run.ranks // (cut.tp * cut.cp)
    recompute = (False, True) if shape.layer else (False,)
    for pp in divisors(left):
        data = left // pp
        if run.batch % data or (data > 1 and not shape.runs("batch")) or (pp > 1 and LEAST_MODULES * pp > shape.parts):
            continue
        stored = list(_stored(run, data, cut, pp))
        ways = list(_ways(run, cut, pp, run.batch // data, shape))
        for (dp, copies, store), (schedule, chunks, parts, passes), again in product(stored, ways, recompute):
            if again and schedule in HALVES:
                continue
            yield Candidate(
                cut=cut,
                dp=dp,
                copies=copies,
                store=store,
                pp=pp,
                schedule=schedule,
                chunks=chunks,
                subsequences=parts,
                passes=passes,
                recompute=again,
            )


def _stored(run: Run, data: int, cut: Cut, pp: int) -> Iterator[tuple[int, int, Store]]:
    """(dp, copies, store); what cuts a sequence cuts state at rest too. Stages keep what they gathered."""
    kept: tuple[Store, ...] = ("free", "keep") if pp == 1 else ("keep",)
    whole: Store = "none"
    if cut.cp == 1:
        yield data, 1, whole
    for dp in divisors(data):
        nodes = dp == data or dp * cut.cp * cut.tp % min(run.ranks_per_node, run.ranks) == 0
        for store in kept if dp * cut.cp > 1 and nodes else ():
            yield dp, data // dp, store


def _ways(run: Run, cut: Cut, pp: int, sequences: int, shape: Shape) -> Iterator[tuple[str, int, int, int]]:
    """(schedule, stages a rank, subsequences, passes) of a rank's sequences."""
    most = max(1, MOST_TOKENS * cut.cp // run.seq)
    counts = [n for n in divisors(sequences) if sequences // n <= most and n <= MOST_PASSES]
    if pp == 1:
        yield from (("", 1, 1, passes) for passes in counts)
        return
    for (name, chunks, parts), passes in product(SCHEDULES, counts):
        if LEAST_MODULES * pp * chunks > shape.parts or passes * parts < pp:
            continue
        if name == "interleaved_1f1b" and passes % max(1, passes // pp):
            continue
        if parts > 1 and not _slices(run, cut, parts, shape):
            continue
        yield name, chunks, parts, passes


def _slices(run: Run, cut: Cut, parts: int, shape: Shape) -> bool:
    """Sequences can be sliced: no axis cuts them, no second stream, equal parts."""
    inner = cut.tp if cut.sequence else 1
    return cut.cp == 1 and not shape.streams and run.seq % (parts * inner) == 0
