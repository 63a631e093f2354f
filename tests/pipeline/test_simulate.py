"""Simulated times, against closed forms and numbers worked out by hand."""

from __future__ import annotations

import time
from itertools import product

import pytest
from every_program import PROGRAMS

from meshlang.pipeline import orders, v_orders
from meshlang.pipeline.costs import Costs, bounds, cut, shares
from meshlang.pipeline.live import peak_activations, peak_counts
from meshlang.pipeline.mapping import best, crossings, moved, places
from meshlang.pipeline.notation import program_of
from meshlang.pipeline.sequence_orders import seq1f1b, seq1f1b_interleaved
from meshlang.pipeline.simulate import simulate
from meshlang.pipeline.two_replicas import bitpipe, chimera, dualpipe
from meshlang.pipeline.zigzag import bsipipe, lead, makespan_is_exact, seqv

F, B = 1.0, 2.0


@pytest.mark.parametrize(("p", "v", "s"), list(product((2, 4, 6, 8, 12), (1, 2, 3), (1, 2, 3, 4, 6, 8))))
def test_bsipipe_is_its_closed_form(p: int, v: int, s: int) -> None:
    """Peak and makespan are the formulas' where those are exact, and never above by more than they may be."""
    for m in (2, p, 2 * p):
        if m % 2:
            continue
        program = bsipipe(p, v, m, s)
        ahead = lead(ranks=p, chunks=v, subsequences=s, unit=p // 2, sequences=m // 2)
        found, formula = simulate(program).makespan, m * (F + B) + (p - 2) * max(F, B) / (v * s)
        if makespan_is_exact(p, m, s):
            assert found == pytest.approx(formula)
            assert set(peak_counts(program)) == {ahead}
        assert max(peak_counts(program)) <= ahead
        assert found <= formula + p * (F + B) / s + 1e-9
        if s <= p // 2 and (p // 2) % s == 0:
            assert ahead == v * p + 2 * s - 2
        elif s % max(1, p // 2) == 0:
            assert ahead == 2 * v * s + p - 2


def test_bsipipe_is_two_seqv_on_half_the_ranks() -> None:
    """Without link costs, data parallel 2 of SeqV on half the ranks has the same makespan and the same peak."""
    for p, v, s in product((4, 8), (1, 2, 3), (1, 2, 4)):
        m = 2 * p
        both, half = bsipipe(p, v, m, s), seqv(p // 2, 2 * v, m // 2, s)
        assert simulate(both).makespan == pytest.approx(simulate(half, Costs(shares=p)).makespan)
        assert max(peak_activations(both)) == pytest.approx(max(peak_activations(half, shares=p)))


@pytest.mark.parametrize(("p", "s"), list(product((2, 3, 4, 8), (1, 2, 4, 8))))
def test_single_replicas_are_their_closed_forms(p: int, s: int) -> None:
    """1F1B, Seq1F1B and its interleaved form idle, and hold, what their papers say."""
    m = 2 * p
    plain = simulate(seq1f1b(p, m, s))
    assert plain.makespan == pytest.approx(m * (F + B) + (p - 1) * (F + B) / s)
    assert max(plain.peaks) == pytest.approx((p + s - 1) / s)
    if s == 1:
        assert simulate(program_of(orders.one_f_one_b(p, m))).makespan == pytest.approx(plain.makespan)
    for v in (2, 3):
        if p % s == 0:
            inner = simulate(seq1f1b_interleaved(p, v, m, s))
            assert inner.makespan == pytest.approx(m * (F + B) + (p - 1) * (F + B) / (v * s))
            assert max(inner.peaks) == pytest.approx(((v - 1) * p + 2 * (p - 1) + s) / (v * s))


@pytest.mark.parametrize("p", [2, 4, 8, 16])
def test_bitpipe_idles_as_published(p: int) -> None:
    """Seams of units cost half of what a unit's ends do, at B = 2 F."""
    for units in (1, 2, 3):
        idle = simulate(bitpipe(p, units * p)).makespan - units * p * (F + B)
        assert idle == pytest.approx((p - 2) * F + (units - 1) * (p / 2 - 1) * F)


def test_zero_bubble_orders_idle_as_published() -> None:
    """ZB-V idles (p - 1) F / 2 where F = I = W; it holds p, DualPipeV p + 1 / 2, DualPipe p + 1, Chimera p."""
    even = Costs(backward=2.0, weights=0.5)
    for p in (2, 4, 8):
        zbv = simulate(program_of(v_orders.zbv(p, 2 * p)), even)
        assert zbv.makespan - 3 * 2 * p == pytest.approx((p - 1) / 2)
        assert max(zbv.peaks) == p
        assert max(peak_activations(program_of(v_orders.dualpipev(p, 2 * p)))) == p + 0.5
        assert max(peak_counts(dualpipe(p, 2 * p))) == p + 1
        assert max(peak_counts(chimera(p, 2 * p))) == p


def test_costs_by_hand() -> None:
    """One rank, then two: times of operations, of messages and of the head add up."""
    one = simulate(seq1f1b(1, 1, 2), Costs(attention=0.5, attention_backward=3.0))
    assert one.ends == ((0.375, 1.0, 2.625, 3.5),)
    two = simulate(seq1f1b(2, 1, 1), Costs(latency=0.25, transfer=0.5, head=0.125))
    assert two.starts == ((0.0, 1.75 + 1.125 + 2.25 + 0.75), (1.75, 1.75 + 1.125))
    far = simulate(seq1f1b(2, 1, 1), Costs(latency_between=1.0, ranks_per_node=1))
    assert far.makespan == 3 * 2 + 2
    assert far.bubble == pytest.approx(1 - 6 / 16)


def test_messages_of_a_pair_follow_each_other() -> None:
    """A link takes one message at a time."""
    found = simulate(program_of(orders.gpipe(2, 3)), Costs(transfer=2.0))
    assert found.starts[1][:3] == (3.0, 5.0, 7.0)


def test_equal_forwards_cost_the_same() -> None:
    """Cut by time, every subsequence's forward takes as long; cut by tokens, the last takes longest."""
    ends = bounds(4, 0.4, "flops")
    tokens, pairs = shares(ends)
    assert [0.6 * n + 0.4 * k for n, k in zip(tokens, pairs, strict=True)] == pytest.approx([0.25] * 4)
    assert cut(1000, ends, 10) == (0, 340, 600, 810, 1000)
    assert cut(3, bounds(3)) == (0, 1, 2, 3)
    assert bounds(4, 0.4, "equal") == (0, 0.25, 0.5, 0.75, 1)


def test_gradients_are_summed_beside_the_computing() -> None:
    """Eager sums leave one stage's in the open, lazy ones all; data parallel copies of a pipeline sum too."""
    program = bsipipe(8, 2, 16, 2)
    eager, lazy = (simulate(program, Costs(sync=1.0, eager=each)) for each in (True, False))
    assert eager.exposed == pytest.approx(1 / 2)
    assert lazy.exposed == pytest.approx(2 * 2 * 1 / 2)
    assert simulate(seqv(4, 4, 8, 2), Costs(sync=1.0, shares=8), copies=2).exposed == pytest.approx(1 / 2)
    assert simulate(seqv(4, 4, 8, 2), Costs(sync=1.0)).exposed == 0


def test_folded_ranks_keep_pairs_on_a_node() -> None:
    """Folded, 16 ranks on two nodes have two links between them and no pair; in a row 1 and 8; BitPipe's 14 and 0."""
    program = bsipipe(16, 2, 16, 2)
    found = {name: crossings(moved(program, places(name, 16, 8)), 8) for name in ("folded", "contiguous", "bitpipe")}
    assert found == {"folded": (2, 0), "contiguous": (1, 8), "bitpipe": (14, 0)}
    assert places("bitpipe", 8, 1) == (0, 7, 2, 5, 4, 3, 6, 1)
    assert [best(16, node) for node in (1, 4, 8, 16)] == ["contiguous", "contiguous", "folded", "folded"]
    for name in ("folded", "contiguous", "bitpipe"):
        assert sorted(places(name, 16, 8)) == list(range(16))


def test_peak_is_flat_in_subsequences() -> None:
    """From p / 2 subsequences on, more of them hold no more activations; up to there, no more than Seq1F1B's."""
    for p in (4, 8, 16):
        peaks = [max(peak_activations(bsipipe(p, 2, 2 * p, s))) for s in (p // 2, p, 2 * p)]
        assert peaks == sorted(peaks, reverse=True)
        assert all(2 <= peak < 3 for peak in peaks)
        for s in (s for s in range(1, p // 2 + 1) if p // 2 % s == 0):
            ours, theirs = bsipipe(p, 2, 2 * p, s), seq1f1b(p, 2 * p, s)
            assert max(peak_activations(ours)) == pytest.approx(max(peak_activations(theirs)))


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_times_keep_the_order(name: str) -> None:
    """No rank does two things at once, and no operation starts before what it needs has ended."""
    program = PROGRAMS[name](2, 2, 3, 2)
    found = simulate(program, Costs(latency=0.1, transfer=0.2))
    end = {
        op: at for row, ends in zip(program.order, found.ends, strict=True) for op, at in zip(row, ends, strict=True)
    }
    for row, starts, ends in zip(program.order, found.starts, found.ends, strict=True):
        assert all(a <= b for a, b in zip(ends, starts[1:], strict=False))
        for op, start in zip(row, starts, strict=True):
            if op.kind == "F" and op.stage:
                assert end[type(op)("F", op.replica, op.sequence, op.subsequence, op.stage - 1)] <= start
    assert found.makespan == found.computed == max(end.values())


def test_large_programs_take_seconds() -> None:
    """100 ranks and 1,000 microbatches are made, held against the laws and simulated in seconds."""
    began = time.process_time()
    assert simulate(bsipipe(100, 1, 1000, 1)).makespan == pytest.approx(1000 * 3 + 98 * 2)
    assert time.process_time() - began < 20


def test_stages_may_differ() -> None:
    """With a time for each operation of each stage, ranks take those, and wait for the slower one."""
    program = seq1f1b(2, 2, 1)
    times = {
        (kind, stage): (length,) for kind, stage, length in (("F", 0, 1.0), ("F", 1, 3.0), ("B", 0, 2.0), ("B", 1, 4.0))
    }
    found = simulate(program, times=times)
    assert found.makespan == 1 + 2 * (3 + 4) + 2
    assert found.busy == (2 * (1 + 2), 2 * (3 + 4))
