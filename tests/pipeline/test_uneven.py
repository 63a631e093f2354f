"""BSIPipe with more sequences one way: where an odd number of sequences is the most that ranks have room for."""

from __future__ import annotations

from itertools import product

import pytest

from meshlang.pipeline.costs import Costs
from meshlang.pipeline.held import filled, late
from meshlang.pipeline.late_weights import late_weights
from meshlang.pipeline.laws import program_problems
from meshlang.pipeline.live import peak_activations, peak_counts
from meshlang.pipeline.sequence_orders import seq1f1b
from meshlang.pipeline.simulate import simulate
from meshlang.pipeline.zigzag import bsipipe, can_be_uneven, uneven_bsipipe

LINKED = Costs(attention=0.4, split="flops", transfer=0.03)
#: (ranks, subsequences) that can be uneven, and leave no rank of a period unused.
ODD = [(6, 2), (10, 2), (12, 4), (14, 2), (18, 6)]
#: The same with some left.
SPACED = [(10, 3), (14, 4), (16, 3), (16, 5), (22, 6), (22, 7)]


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


@pytest.mark.parametrize("v", [2, 4, 6])
@pytest.mark.parametrize(("p", "s"), SPACED)
def test_units_that_leave_ranks_keep_all_laws(p: int, s: int, v: int) -> None:
    """One message a pair, and no more held than where none is left, for any number of microbatches."""
    for m in (2, 3, p + 1):
        program = uneven_bsipipe(p, v, m, s)
        assert program_problems(program) == []
        assert max(peak_counts(program)) <= v * p + 2 * s - 2
        ours = filled(program, LINKED)
        assert program_problems(ours) == []
        assert max(simulate(ours, LINKED).peaks) <= max(simulate(seq1f1b(p, p, s), LINKED).peaks) + 1e-9


def test_one_more_sequence_a_period_is_faster() -> None:
    """Of 14 ranks and four subsequences three sequences fit, and of 22 and six: faster than twice one a unit."""
    for p, s in ((14, 4), (22, 6)):
        three = simulate(filled(uneven_bsipipe(p, 2, p, s), LINKED), LINKED).makespan
        assert three * 1.004 < simulate(late(p, 2, p, s, replicas=2, hold=True, costs=LINKED), LINKED).makespan


@pytest.mark.parametrize(("p", "s"), ODD)
def test_makespan_is_exact(p: int, s: int) -> None:
    """A rank idles (p - 2 + s) B / (v s), and where F = I = W half of it in forwards."""
    for v, m in product((2, 4), (p, 2 * p)):
        program = uneven_bsipipe(p, v, m, s)
        assert simulate(program).makespan == pytest.approx(3 * m + 2 * (p - 2 + s) / (v * s))
        assert simulate(late_weights(program)).makespan == pytest.approx(3 * m + (p - 2 + s) / 2 / (v * s))


@pytest.mark.parametrize("costs", [Costs(), LINKED])
def test_it_gains_over_seq1f1b_at_its_peak(costs: Costs) -> None:
    """Under either costs it is faster at no more peak, more so with gradients of weights put off."""
    for p, s in ODD:
        for m in (p, 2 * p):
            program, theirs = uneven_bsipipe(p, 2, m, s), simulate(seq1f1b(p, m, s), costs).makespan
            assert simulate(program, costs).makespan < theirs / 1.04
            assert simulate(late_weights(program, costs), costs).makespan < theirs / 1.065


def test_where_it_can_be() -> None:
    """An odd number of sequences, three or more, is the most that fits; ranks and stages a rank are even."""
    found = [(p, s) for p in range(4, 15, 2) for s in range(2, p) if can_be_uneven(p, 2, s)]
    assert found == [(6, 2), (10, 2), (10, 3), (12, 4), (14, 2), (14, 4)]
    assert not can_be_uneven(6, 3, 2)
    assert not can_be_uneven(3, 2, 1)
