"""One forward, one backward, over subsequences: Seq1F1B, plain and interleaved.

(Sun et al., Seq1F1B, arXiv 2406.03488.) Inside a sequence forwards go first to last and backwards
last to first, since a subsequence attends to those before it.
"""

from __future__ import annotations

from .ir import Host, Op, OpKind, Program


def seq1f1b(ranks: int, sequences: int, subsequences: int) -> Program:
    """One stage a rank; `ranks - 1 - rank + subsequences - 1` forwards ahead, then in turn."""
    return seq1f1b_interleaved(ranks, 1, sequences, subsequences)


def seq1f1b_interleaved(ranks: int, chunks: int, sequences: int, subsequences: int, *, hop: int = 2) -> Program:
    """Stages loop over the ranks; `ranks` subsequences in a row go through a stage, then
    through the rank's next.

    The last rank goes just far enough ahead for each backward to find its forward done; every rank
    before it `hop` more (1 is enough where sending takes no time), with one stage a rank always 1.
    """
    return Program(
        ranks=ranks,
        stages=ranks * chunks,
        replicas=1,
        sequences=sequences,
        subsequences=subsequences,
        hosts=tuple(Host(0, stage, stage % ranks) for stage in range(ranks * chunks)),
        order=tuple(row_of(rank, ranks, chunks, sequences, subsequences, hop=hop) for rank in range(ranks)),
    )


def row_of(rank: int, ranks: int, chunks: int, sequences: int, subsequences: int, *, hop: int = 2) -> tuple[Op, ...]:
    """What one rank does, in order."""
    hop = 1 if chunks == 1 else hop
    there = _turns(ranks, chunks, sequences * subsequences)
    back = [(chunks - 1 - chunk, _mirrored(x, subsequences)) for chunk, x in there]
    return _in_turn(
        [_op("F", chunk * ranks + rank, x, subsequences) for chunk, x in there],
        [_op("B", chunk * ranks + rank, x, subsequences) for chunk, x in back],
        _ahead(there, back, chunks) + hop * (ranks - 1 - rank),
    )


def _turns(ranks: int, chunks: int, total: int) -> list[tuple[int, int]]:
    """(chunk, subsequence of the step) of each forward of a rank, unit after unit, chunk after chunk.

    A unit is `ranks` subsequences, or a few more where those do not divide: a shorter one would leave
    a rank waiting for itself.
    """
    units = max(1, total // ranks)
    ends = [total * (unit + 1) // units for unit in range(units)]
    return [(chunk, x) for a, b in zip([0, *ends], ends, strict=False) for chunk in range(chunks) for x in range(a, b)]


def _mirrored(x: int, subsequences: int) -> int:
    """The subsequence that stands at place x of the step going back."""
    sequence, i = divmod(x, subsequences)
    return sequence * subsequences + subsequences - 1 - i


def _ahead(there: list[tuple[int, int]], back: list[tuple[int, int]], chunks: int) -> int:
    """Forwards of the last rank before it begins to take a forward and a backward in turn."""
    place = {turn: index for index, turn in enumerate(there)}
    return max(place[chunk, x] - index for index, (chunk, x) in enumerate(back) if chunk == chunks - 1)


def _op(kind: OpKind, stage: int, x: int, subsequences: int) -> Op:
    sequence, subsequence = divmod(x, subsequences)
    return Op(kind, 0, sequence, subsequence, stage)


def _in_turn(forwards: list[Op], backwards: list[Op], ahead: int) -> tuple[Op, ...]:
    """`ahead` forwards, then a forward and a backward in turn, then the backwards that are left."""
    row = forwards[:ahead]
    for index, backward in enumerate(backwards):
        row += forwards[ahead + index : ahead + index + 1]
        row.append(backward)
    return tuple(row)
