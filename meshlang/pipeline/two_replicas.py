"""Schedules of two replicas from both ends, whole sequences at a time: Chimera, BitPipe, DualPipe.

Replica 0 goes down, replica 1 is its mirror image, and each takes half of the sequences.
"""

from __future__ import annotations

from .actions import flat
from .ir import Host, Op, Program
from .v_orders import dualpipev
from .zigzag import rank_of, turn


def chimera(ranks: int, sequences: int) -> Program:
    """Units of `ranks` sequences, half of them each way (Li and Hoefler 2021, direct concatenation).

    In a unit, the forward of stage k for the i-th sequence of its replica has slot k + 2 i and
    the backward slot ranks + (ranks - 1 - k) + 2 i: no two of a rank have the same. The next unit
    begins 2 ranks slots later, where its first forwards fill the holes between the last backwards.
    """
    rows: list[list[tuple[int, Op]]] = [[] for _ in range(ranks)]
    for sequence in range(sequences):
        unit, within = divmod(sequence, ranks)
        replica, first = within % 2, 2 * ranks * unit + 2 * (within // 2)
        for stage in range(ranks):
            row = rows[rank_of(stage, ranks, replica)]
            row.append((first + stage, Op("F", replica, sequence, 0, stage)))
            row.append((first + 2 * ranks - 1 - stage, Op("B", replica, sequence, 0, stage)))
    return _program(ranks, 1, sequences, [[op for _, op in sorted(row, key=lambda slot: slot[0])] for row in rows])


def bitpipe(ranks: int, sequences: int) -> Program:
    """Two zig-zags of two stages a rank each, units of `ranks` sequences (BitPipe, arXiv 2410.19367).

    With c = min(rank, ranks - 1 - rank) a rank takes ranks + ranks / 2 + c forwards, then a forward
    and a backward in turn until the unit's forwards are done; between units most of the backwards
    that are left come before the next unit's forwards (as its published program does).
    """
    rows = [_bitpipe_row(ranks, rank, sequences) for rank in range(ranks)]
    return _program(ranks, 2, sequences, rows)


def _bitpipe_row(ranks: int, rank: int, sequences: int) -> list[Op]:
    ahead = ranks + ranks // 2 + min(rank, ranks - 1 - rank)
    turns, units = 2 * ranks - ahead, sequences // ranks
    forwards, backwards = _bitpipe_slots(ranks, rank, sequences)
    row = forwards[:ahead]
    f, b = ahead, 0
    for unit in range(units):
        row += _alternate(forwards[f : f + turns], backwards[b : b + turns])
        f, b = f + turns, b + turns
        if unit == units - 1:
            break
        row += backwards[b : b + ahead - turns + 1]
        b += ahead - turns + 1
        row += _alternate(forwards[f : f + turns - 1], backwards[b : b + turns - 1])
        f, b = f + turns - 1, b + turns - 1
        row += forwards[f : f + ahead - turns + 1]
        f += ahead - turns + 1
    return [*row, *backwards[b:]]


def _bitpipe_slots(ranks: int, rank: int, sequences: int) -> tuple[list[Op], list[Op]]:
    """A rank's forwards and its backwards, each by unit and slot."""
    forwards: list[tuple[int, int, Op]] = []
    backwards: list[tuple[int, int, Op]] = []
    for sequence in range(sequences):
        replica, x = sequence % 2, sequence // 2
        for stage in (k for k in range(2 * ranks) if rank_of(k, ranks, replica) == rank):
            unit, slot = sequence // ranks, turn(0, x, ranks=ranks, chunks=2, unit=ranks // 2)
            forwards.append((unit, slot + stage, Op("F", replica, sequence, 0, stage)))
            backwards.append((unit, slot - stage, Op("B", replica, sequence, 0, stage)))
    ordered = [[op for _, _, op in sorted(ops, key=lambda each: each[:2])] for ops in (forwards, backwards)]
    return ordered[0], ordered[1]


def _alternate(forwards: list[Op], backwards: list[Op]) -> list[Op]:
    return [op for pair in zip(forwards, backwards, strict=True) for op in pair]


def dualpipe(ranks: int, sequences: int) -> Program:
    """A forward of one replica beside a backward of the other (DeepSeek-AI 2024).

    It is DualPipeV on each half of the ranks, joined: a rank of the first half has the V's near
    stage in replica 0 and its far one in replica 1, its mirror image the other way round.
    """
    half = ranks // 2
    order = dualpipev(half, sequences // 2)
    rows: list[list[Op]] = []
    for rank in range(ranks):
        near = 0 if rank < half else 1
        row: list[Op] = []
        for action in flat(order[min(rank, ranks - 1 - rank)]):
            replica = near if action.stage < half else 1 - near
            row.append(Op(action.kind, replica, 2 * action.microbatch + replica, 0, action.stage))
        rows.append(row)
    return _program(ranks, 1, sequences, rows)


def _program(ranks: int, chunks: int, sequences: int, rows: list[list[Op]]) -> Program:
    return Program(
        ranks=ranks,
        stages=chunks * ranks,
        replicas=2,
        sequences=sequences,
        subsequences=1,
        hosts=tuple(Host(r, k, rank_of(k, ranks, r)) for r in (0, 1) for k in range(chunks * ranks)),
        order=tuple(map(tuple, rows)),
    )
