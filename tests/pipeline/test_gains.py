"""What BSIPipe gains in simulation, at the same peak, and what gains as much."""

from __future__ import annotations

from math import exp, log

import pytest

from meshlang.pipeline.costs import Costs
from meshlang.pipeline.ir import Program
from meshlang.pipeline.late_weights import late_weights
from meshlang.pipeline.live import peak_counts
from meshlang.pipeline.sequence_orders import seq1f1b, seq1f1b_interleaved
from meshlang.pipeline.simulate import Timeline, simulate
from meshlang.pipeline.zigzag import bsipipe, seqv

#: p, m, s: s divides p / 2.
SETS = [
    (p, m, s) for p in (4, 8, 16, 32) for s in (2, 4, 8, 16) for m in (p, 2 * p) if s <= p // 2 and (p // 2) % s == 0
]
Pair = tuple[Program, Program]
LINKED = Costs(attention=0.4, split="flops", transfer=0.03)


def _mean(pairs: list[tuple[Timeline, Timeline]]) -> float:
    """Geometric mean of the second's makespan over the first's."""
    return exp(sum(log(theirs.makespan / ours.makespan) for ours, theirs in pairs) / len(pairs))


@pytest.fixture(scope="module")
def programs() -> list[Pair]:
    """BSIPipe and Seq1F1B at each set, made once."""
    return [(bsipipe(p, 2, m, s), seq1f1b(p, m, s)) for p, m, s in SETS]


@pytest.mark.parametrize(("costs", "least"), [(Costs(), 1.13), (LINKED, 1.15)])
def test_bsipipe_gains_over_seq1f1b(programs: list[Pair], costs: Costs, least: float) -> None:
    """Over p 4 to 32 it is 1.13 times as fast, 1.15 with attention and links, and holds no more."""
    pairs = [(simulate(ours, costs), simulate(theirs, costs)) for ours, theirs in programs]
    assert _mean(pairs) >= least
    assert all(max(ours.peaks) <= max(theirs.peaks) + 1e-9 for ours, theirs in pairs)
    assert all(ours.makespan < theirs.makespan for ours, theirs in pairs)


def test_what_gains_as_much() -> None:
    """Half depth x dp 2 is as fast without links, and faster with them; the interleaved form is 4 % behind."""
    small = [each for each in SETS if each[0] <= 8]
    for costs, bound in ((Costs(), 1.0), (LINKED, 0.9999)):
        for p, m, s in small:
            ours = simulate(bsipipe(p, 2, m, s), costs)
            half = simulate(seqv(p // 2, 4, m // 2, s), Costs(**{**vars(costs), "shares": p}), copies=2)
            assert half.makespan <= ours.makespan * bound + 1e-9
            assert max(half.peaks) == pytest.approx(max(ours.peaks))
    pairs = [(simulate(bsipipe(p, 2, m, s)), simulate(seq1f1b_interleaved(p, 2, m, s))) for p, m, s in small]
    assert 1.02 < _mean(pairs) < 1.09
    assert all(max(ours.peaks) < max(theirs.peaks) for ours, theirs in pairs)


def test_late_weights_gain_more() -> None:
    """With gradients of weights put off it gains more at the same peak; SeqV so, at one copy, is ahead of the plain."""
    small = [each for each in SETS if each[0] <= 8]
    plain, late, single = [], [], []
    for p, m, s in small:
        program, against = bsipipe(p, 2, m, s), simulate(seq1f1b(p, m, s))
        put_off = late_weights(program)
        assert max(peak_counts(put_off)) == max(peak_counts(program))
        plain.append((simulate(program), against))
        late.append((simulate(put_off), against))
        single.append((simulate(late_weights(seqv(p, 2, m, s))), against))
    assert _mean(late) > _mean(single) > _mean(plain)
