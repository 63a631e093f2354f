"""Sequence-level schedules whose stages go to the last rank and back: SeqV, and BSIPipe of two of them.

Every operation has a slot from a closed form, and a rank takes its operations by slot. Two kinds
of slots run side by side: one for forwards, one for backwards; where both are due, the backward
goes first. With S = chunks x ranks stages, n subsequences a sequence, and h subsequences of a
replica to a unit (ranks / 2 where two replicas share the ranks, ranks where there is one):

    x = n q + i, y = n q + (n - 1 - i)      subsequence i of the replica's q-th sequence
    turn(k, x) = chunks ranks floor(x / h) + k + 2 (x mod h)
    forward of stage k in slot turn(k, x), backward in slot lead + turn(0, y) + S - 1 - k

`lead` is the least that puts the first backward of every subsequence behind its last forward.
Units follow each other without a flush, also from one sequence to the next, so that more
subsequences make more slots and not more activations (BSIPipe, arXiv 2610.14935: the abstract
names the parts, the formulas are ours). A message that leaves in one slot is needed in the next.

A sequence that straddles two units is held for a unit longer. With an even number of chunks there are
other slots than these: with no slot empty, those at which a replica takes in subsequences have a period
of 2 ranks, one replica can have any of the even ones, and the other those that the first leaves free,
`ranks` slots earlier. Sequences are whole in both where ranks / subsequences = n is a whole number; where
that is odd, (n + 1) / 2 of n sequences go down, the rest comes up, `subsequences` slots behind.

Where sequences straddle units, units of whole sequences alone are shorter, and leave slots empty: with w of
`unit` places used, the next unit can begin as soon as the last turn of this one is through, 2 (unit - w)
slots earlier. No sequence is held for longer, and gradients of weights that are put off fill the slots.
Both replicas have room for n = floor(ranks / subsequences) of them in a period, one more than twice what fits
in a unit where n is odd: then (n + 1) / 2 go down again, and slots of the other replica are even, so the least of
them is `subsequences` rounded down behind.
"""

from __future__ import annotations

from dataclasses import dataclass

from .ir import Host, Op, Program


def rank_of(stage: int, ranks: int, replica: int = 0) -> int:
    """Where a stage lies: to the last rank and back; the second replica is the mirror image."""
    block, place = divmod(stage, ranks)
    down = ranks - 1 - place if block % 2 else place
    return ranks - 1 - down if replica else down


def turn(stage: int, x: int, *, ranks: int, chunks: int, unit: int, period: int | None = None) -> int:
    """The slot of the forward of a stage for the x-th subsequence of its replica; units are `period` slots apart."""
    return (period or chunks * ranks) * (x // unit) + stage + 2 * (x % unit)


def lead(*, ranks: int, chunks: int, subsequences: int, unit: int, sequences: int, period: int | None = None) -> int:
    """Slots from the first forward to the first backward.

    chunks ranks + 2 subsequences - 2 where those fill no more than a unit and divide it,
    2 (chunks subsequences - 1) + ranks with two replicas where a unit divides them.
    """
    last, found = chunks * ranks - 1, 0
    for sequence in range(sequences):
        for i in range(subsequences):
            x, y = sequence * subsequences + i, sequence * subsequences + subsequences - 1 - i
            there = turn(last, x, ranks=ranks, chunks=chunks, unit=unit, period=period)
            found = max(found, there + 1 - turn(0, y, ranks=ranks, chunks=chunks, unit=unit, period=period))
    return found


@dataclass(frozen=True, kw_only=True)
class _Way:
    """What goes through a replica: its sequences, so many subsequences to a unit, from a slot on."""

    sequences: range | tuple[int, ...]
    unit: int
    start: int = 0
    period: int | None = None


def seqv(ranks: int, chunks: int, sequences: int, subsequences: int) -> Program:
    """One replica, an even number of stages on each rank, first and last of them on rank 0."""
    assert chunks % 2 == 0, chunks
    return _by_slot(ranks, chunks, subsequences, _even(ranks, sequences, 1))


def bsipipe(ranks: int, chunks: int, sequences: int, subsequences: int) -> Program:
    """Two replicas from both ends: sequence 2q goes down, 2q + 1 comes up; `chunks` stages of each a rank."""
    assert ranks % 2 == 0, ranks
    assert sequences % 2 == 0, sequences
    return _by_slot(ranks, chunks, subsequences, _even(ranks, sequences, 2))


def spaced(ranks: int, chunks: int, sequences: int, subsequences: int, *, replicas: int) -> Program:
    """BSIPipe, or SeqV, in units of whole sequences, as many as fit; a unit has room for one at least."""
    unit = ranks // replicas
    whole = unit // subsequences * subsequences
    assert whole, (ranks, subsequences, replicas)
    turns = chunks if replicas == 2 else chunks // 2
    period = 2 * ((turns - 1) * unit + whole)
    ways = tuple(_Way(sequences=range(r, sequences, replicas), unit=whole, period=period) for r in range(replicas))
    return _by_slot(ranks, chunks, subsequences, ways)


def can_be_uneven(ranks: int, chunks: int, subsequences: int) -> bool:
    """Whether a period has room for an odd number of sequences, 3 or more; ranks and chunks are even."""
    fit = ranks // subsequences
    return chunks % 2 == 0 and ranks % 2 == 0 and fit % 2 == 1 and fit > 1


def uneven_bsipipe(ranks: int, chunks: int, sequences: int, subsequences: int) -> Program:
    """The same in units of n = floor(ranks / subsequences) whole sequences: (n + 1) / 2 down, the others up.

    No sequence straddles two units, and a rank holds chunks ranks + 2 subsequences - 2 operations at most. A
    period has (chunks - 1) ranks + n subsequences slots, one more where that is odd.
    """
    assert can_be_uneven(ranks, chunks, subsequences), (ranks, chunks, subsequences)
    n = ranks // subsequences
    down = tuple(q for q in range(sequences) if q % n % 2 == 0)
    up = tuple(q for q in range(sequences) if q % n % 2)
    more, less = (n + 1) // 2 * subsequences, n // 2 * subsequences
    period = (chunks - 1) * ranks + more + less + (more + less) % 2
    behind = subsequences // 2 * 2
    ways = (
        _Way(sequences=down, unit=more, period=period),
        _Way(sequences=up, unit=less, start=behind, period=period),
    )
    return _by_slot(ranks, chunks, subsequences, ways)


def makespan_is_exact(ranks: int, sequences: int, subsequences: int) -> bool:
    """Whether BSIPipe's makespan is m (F + B) + (p - 2) max(F, B) / (v s), where no link costs anything.

    The units are whole, those of a sequence too, and there are enough of them for the pipelines to be full.
    """
    unit, total = ranks // 2, sequences * subsequences
    whole = total % ranks == 0 and (unit % subsequences == 0 or subsequences % unit == 0)
    return whole and sequences >= 4 and total >= 2 * ranks


def row_of(rank: int, *, ranks: int, chunks: int, sequences: int, subsequences: int, replicas: int) -> tuple[Op, ...]:
    """What one rank does, in order, where as many sequences go each way."""
    return _row(rank, ranks, chunks, subsequences, _even(ranks, sequences, replicas))


def _even(ranks: int, sequences: int, replicas: int) -> tuple[_Way, ...]:
    return tuple(_Way(sequences=range(r, sequences, replicas), unit=ranks // replicas) for r in range(replicas))


def _row(rank: int, ranks: int, chunks: int, subsequences: int, ways: tuple[_Way, ...]) -> tuple[Op, ...]:
    stages, sequences = chunks * ranks, sum(len(way.sequences) for way in ways)
    ahead = max(
        lead(
            ranks=ranks,
            chunks=chunks,
            subsequences=subsequences,
            unit=way.unit,
            sequences=len(way.sequences),
            period=way.period,
        )
        for way in ways
    )
    row: dict[int, Op] = {}  # 2 slot + 1 of a forward, 2 slot of a backward
    for replica, way in enumerate(ways):
        held = [stage for stage in range(stages) if rank_of(stage, ranks, replica) == rank]
        for x in range(len(way.sequences) * subsequences):
            own, i = divmod(x, subsequences)
            sequence, y = way.sequences[own], own * subsequences + subsequences - 1 - i
            begins, ends = (turn(0, at, ranks=ranks, chunks=chunks, unit=way.unit, period=way.period) for at in (x, y))
            there, back = way.start + begins, way.start + ahead + ends + stages - 1
            for stage in held:
                row[2 * (there + stage) + 1] = Op("F", replica, sequence, i, stage)
                row[2 * (back - stage)] = Op("B", replica, sequence, i, stage)
    assert len(row) == 2 * chunks * sequences * subsequences, "two of a rank in a slot"
    return tuple(row[slot] for slot in sorted(row))


def _by_slot(ranks: int, chunks: int, subsequences: int, ways: tuple[_Way, ...]) -> Program:
    stages = chunks * ranks
    return Program(
        ranks=ranks,
        stages=stages,
        replicas=len(ways),
        sequences=sum(len(way.sequences) for way in ways),
        subsequences=subsequences,
        hosts=tuple(Host(r, k, rank_of(k, ranks, r)) for r in range(len(ways)) for k in range(stages)),
        order=tuple(_row(rank, ranks, chunks, subsequences, ways) for rank in range(ranks)),
    )
