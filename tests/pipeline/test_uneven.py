"""BSIPipe with more sequences one way: whole units where ranks / subsequences is odd."""

from __future__ import annotations

from itertools import product

import pytest

from meshlang.pipeline.costs import Costs
from meshlang.pipeline.late_weights import late_weights
from meshlang.pipeline.laws import program_problems
from meshlang.pipeline.live import peak_activations, peak_counts
from meshlang.pipeline.sequence_orders import seq1f1b
from meshlang.pipeline.simulate import simulate
from meshlang.pipeline.zigzag import bsipipe, can_be_uneven, uneven_bsipipe

#: (ranks, subsequences) that can be uneven.
ODD = [(6, 2), (10, 2), (12, 4), (14, 2), (18, 6)]


@pytest.mark.parametrize("v", [2, 4])
@pytest.mark.parametrize(("p", "s"), ODD)
def test_peak_is_that_of_whole_units(p: int, s: int, v: int) -> None:
    """All laws hold with one message a pair, and a rank holds v p + 2 s - 2 operations, with any microbatches."""
    for m in (2, 3, p + 1):
        program = uneven_bsipipe(p, v, m, s)
        assert program_problems(program) == []
        assert max(peak_counts(program)) <= v * p + 2 * s - 2
    assert max(peak_counts(uneven_bsipipe(p, v, p, s))) == v * p + 2 * s - 2
    if v == 2:
        ours, theirs, even = uneven_bsipipe(p, v, p, s), seq1f1b(p, p, s), bsipipe(p, v, p, s)
        assert max(peak_activations(ours)) == max(peak_activations(theirs)) < max(peak_activations(even))


@pytest.mark.parametrize(("p", "s"), ODD)
def test_makespan_is_exact(p: int, s: int) -> None:
    """A rank idles (p - 2 + s) B / (v s), and where F = I = W half of it in forwards."""
    for v, m in product((2, 4), (p, 2 * p)):
        program = uneven_bsipipe(p, v, m, s)
        assert simulate(program).makespan == pytest.approx(3 * m + 2 * (p - 2 + s) / (v * s))
        assert simulate(late_weights(program)).makespan == pytest.approx(3 * m + (p - 2 + s) / 2 / (v * s))


@pytest.mark.parametrize("costs", [Costs(), Costs(attention=0.4, split="flops", transfer=0.03)])
def test_it_gains_over_seq1f1b_at_its_peak(costs: Costs) -> None:
    """Under either costs it is faster at no more peak, more so with gradients of weights put off."""
    for p, s in ODD:
        for m in (p, 2 * p):
            program, theirs = uneven_bsipipe(p, 2, m, s), simulate(seq1f1b(p, m, s), costs).makespan
            assert simulate(program, costs).makespan < theirs / 1.04
            assert simulate(late_weights(program, costs), costs).makespan < theirs / 1.065


def test_where_it_can_be() -> None:
    """Ranks are even, and an odd number of times the subsequences, and stages a rank even."""
    found = [(p, s) for p in range(4, 21, 2) for s in range(2, p) if can_be_uneven(p, 2, s)]
    assert found == [(6, 2), (10, 2), (12, 4), (14, 2), (18, 2), (18, 6), (20, 4)]
    assert not can_be_uneven(6, 3, 2)
    assert not can_be_uneven(3, 2, 1)
