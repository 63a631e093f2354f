"""Backwards in two: the same peak, less waiting, and still every law."""

from __future__ import annotations

from itertools import product

import pytest

from meshlang.pipeline.ir import Program
from meshlang.pipeline.late_weights import late_weights
from meshlang.pipeline.laws import program_problems
from meshlang.pipeline.live import peak_counts
from meshlang.pipeline.sequence_orders import seq1f1b, seq1f1b_interleaved
from meshlang.pipeline.simulate import simulate
from meshlang.pipeline.zigzag import bsipipe, makespan_is_exact, seqv

NUMBERS = list(product((2, 4, 8), (1, 2, 3), (1, 2, 4), (4, 16)))


def _whole(program: Program) -> list[list[tuple[object, ...]]]:
    """What each rank does but for the gradients of weights, halves counted as whole."""
    return [
        [("B" if op.kind == "I" else op.kind, op.sequence, op.subsequence, op.stage) for op in row if op.kind != "W"]
        for row in program.order
    ]


@pytest.mark.parametrize(("p", "v", "s", "m"), NUMBERS)
def test_late_weights_only_fill_gaps(p: int, v: int, s: int, m: int) -> None:
    """Everything else keeps its order, the peak of each rank stays, all laws hold, and it is no slower."""
    for program in (bsipipe(p, v, m, s), seqv(p, 2 * v, m, s), seq1f1b(p, m, s), seq1f1b_interleaved(p, v, m, s)):
        late = late_weights(program)
        assert program_problems(late, buffers=2) == []
        assert _whole(late) == _whole(program)
        assert all(a <= b for a, b in zip(peak_counts(late), peak_counts(program), strict=True))
        assert simulate(late).makespan <= simulate(program).makespan + 1e-9


@pytest.mark.parametrize(("p", "v", "s", "m"), NUMBERS)
def test_bsipipe_then_idles_for_its_forwards_only(p: int, v: int, s: int, m: int) -> None:
    """With F = I = W a rank idles (p / 2 - 1) F / (v s): the way of the first forwards to the middle."""
    if makespan_is_exact(p, m, s):
        found = simulate(late_weights(bsipipe(p, v, m, s))).makespan
        assert found == pytest.approx(3 * m + (p / 2 - 1) / (v * s))
