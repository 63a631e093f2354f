"""Zig-zags with late gradients of weights: at the peak of Seq1F1B for any number of subsequences."""

from __future__ import annotations

import time
from itertools import product
from math import exp, log

import pytest

from meshlang.pipeline.costs import Costs
from meshlang.pipeline.edges import receive_buffers
from meshlang.pipeline.held import filled, held, late
from meshlang.pipeline.late_weights import late_weights
from meshlang.pipeline.laws import program_problems
from meshlang.pipeline.limits import are_whole, limit
from meshlang.pipeline.live import peak_counts
from meshlang.pipeline.lower import blocked, lowered
from meshlang.pipeline.sequence_orders import seq1f1b
from meshlang.pipeline.simulate import simulate
from meshlang.pipeline.zigzag import bsipipe, can_be_uneven, lead, spaced, uneven_bsipipe

LINKED = Costs(attention=0.4, split="flops", transfer=0.03)
#: (ranks, subsequences), neither dividing the other's half.
STRADDLING = [(p, s) for p in (6, 8, 10, 12) for s in range(2, 8) if not are_whole(p, s, replicas=2)]
#: Ranks along the pipeline axis, subsequences up to half of them, microbatches.
ASKED = [(p, m, s) for p in range(4, 13, 2) for s in range(2, p // 2 + 1) for m in (p, 2 * p)]


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("v", [1, 2, 3, 4])
def test_no_rank_holds_more_than_the_limit(v: int, replicas: int) -> None:
    """For subsequences that straddle units all laws hold, also where sends wait, and the limit is kept."""
    if v % replicas and replicas == 1:
        return
    for (p, s), m in product(STRADDLING, (2, 6)):
        ranks, chunks = (p, v) if replicas == 2 else (p // 2, 2 * v)
        program = held(ranks, chunks, m, s, replicas=replicas)
        assert program_problems(program, buffers=receive_buffers(program)) == []
        assert max(peak_counts(program)) <= limit(ranks, chunks, s, replicas=replicas)
        if p <= 8:
            assert blocked(lowered(program, simulate(program))) == []


def test_messages_of_a_pair_wait_for_few_others() -> None:
    """No pair of ranks has more than nine messages at once; a sender waits when 32 are unanswered."""
    cases = [*((p, v, s) for (p, s), v in product(STRADDLING, (1, 2, 4))), (32, 4, 15), (8, 4, 15), (4, 4, 31)]
    assert max(receive_buffers(held(p, v, 6, s, replicas=2)) for p, v, s in cases) <= 9


def test_limit_is_the_lead_of_whole_units() -> None:
    """Up to two stages a rank the limit is what the closed form holds where units are whole; held is no slower."""
    for p, v, s in product((2, 4, 8, 12), (1, 2), (1, 2, 3, 4, 6, 8, 12)):
        if are_whole(p, s, replicas=2):
            slots = lead(ranks=p, chunks=v, subsequences=s, unit=p // 2, sequences=4)
            assert limit(p, v, s, replicas=2) == slots
            ours, whole = late(p, v, 4, s, replicas=2, hold=True), late_weights(bsipipe(p, v, 4, s))
            assert max(peak_counts(ours)) <= slots
            assert simulate(ours).makespan <= simulate(whole).makespan + 1e-9


@pytest.mark.parametrize("costs", [Costs(), LINKED])
@pytest.mark.parametrize("v", [3, 4])
def test_more_stages_fill_the_room_to_seq1f1b(v: int, costs: Costs) -> None:
    """Three or four stages a rank hold no more than Seq1F1B, and are faster so than at their own peak."""
    gains: list[float] = []
    for p, m, s in (each for each in ASKED if are_whole(each[0], each[2], replicas=2)):
        ours = late(p, v, m, s, replicas=2, hold=True, costs=costs)
        assert program_problems(ours, buffers=receive_buffers(ours)) == []
        found, theirs = simulate(ours, costs), simulate(seq1f1b(p, m, s), costs)
        assert max(found.peaks) <= max(theirs.peaks) + 1e-9
        assert limit(p, v, s, replicas=2) == v * (p + s - 1)
        gains.append(simulate(late(p, v, m, s, replicas=2, costs=costs), costs).makespan / found.makespan)
    assert exp(sum(map(log, gains)) / len(gains)) > (1.001 if costs.transfer else 1 - 1e-9)


def test_half_depth_has_the_limit_of_all_shares() -> None:
    """Seq1F1B on every share of the model is what a pipeline of half the depth is held to as well."""
    for p, s in ((8, 2), (8, 4), (12, 3), (16, 5)):
        assert limit(p // 2, 4, s, replicas=1, shares=p) == limit(p, 2, s, replicas=2)
        assert limit(p // 2, 8, s, replicas=1, shares=p) == limit(p, 4, s, replicas=2) == 4 * (p + s - 1)


def test_limit_is_flat_in_subsequences() -> None:
    """Two stages a rank hold Seq1F1B's peak up to half the ranks; from there more subsequences hold no more."""
    for p in range(4, 17, 2):
        peaks = [limit(p, 2, s, replicas=2) / (2 * s) for s in range(p // 2, 4 * p)]
        assert peaks == sorted(peaks, reverse=True)
        assert all(2 <= peak <= 3 for peak in peaks)
        for s in range(1, p // 2 + 1):
            assert limit(p, 2, s, replicas=2) == 2 * max(peak_counts(seq1f1b(p, p, s)))


@pytest.mark.parametrize("p", range(4, 13, 2))
def test_no_rank_idles_but_for_ramps(p: int) -> None:
    """With F = I = W it is within p / 2 operations of the bound, the way of the first forwards to the middle."""
    for _, m, s in (each for each in ASKED if each[0] == p):
        found = simulate(late(p, 2, m, s, replicas=2, hold=True))
        over = (found.makespan - 3 * m) * 2 * s - (p / 2 - 1)
        assert -1e-6 < over <= p / 2 + 1e-6
        assert max(found.peaks) <= (p + s - 1) / s + 1e-9


def test_held_gains_over_seq1f1b_with_any_subsequences() -> None:
    """Up to 12 ranks, with every number of subsequences up to half of them, it is 1.19 times as fast."""
    gains = [
        simulate(seq1f1b(p, m, s)).makespan / simulate(late(p, 2, m, s, replicas=2, hold=True)).makespan
        for p, m, s in ASKED
    ]
    assert exp(sum(map(log, gains)) / len(gains)) >= 1.19
    assert min(gains) > 1.05


def test_slots_are_faster_where_input_gradients_take_longer() -> None:
    """With attention and links, of subsequences that straddle units, whole units by slot are ahead of a list."""
    for p, s in ((12, 4), (12, 5)):
        listed, slots = (
            held(p, 2, p, s, replicas=2, costs=LINKED),
            late(p, 2, p, s, replicas=2, hold=True, costs=LINKED),
        )
        assert simulate(slots, LINKED).makespan * 1.15 < simulate(listed, LINKED).makespan
        assert max(simulate(slots, LINKED).peaks) < max(simulate(listed, LINKED).peaks)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("v", [1, 2, 3, 4])
def test_spaced_units_keep_all_laws(v: int, replicas: int) -> None:
    """Units of whole sequences hold no more than the limit, with one message a pair, for any number of sequences."""
    if v % replicas and replicas == 1:
        return
    for (p, s), m in product(STRADDLING, (2, 6, 14)):
        ranks, chunks = (p, v) if replicas == 2 else (p // 2, 2 * v)
        if s <= ranks // replicas:
            program = spaced(ranks, chunks, m, s, replicas=replicas)
            assert program_problems(program) == []
            assert max(peak_counts(program)) <= limit(ranks, chunks, s, replicas=replicas)


@pytest.mark.parametrize("costs", [LINKED, Costs(attention=0.1), Costs(transfer=0.03)])
def test_held_is_faster_at_the_peak_of_seq1f1b(costs: Costs) -> None:
    """Under attention, unequal subsequences and links no rank holds more tokens than Seq1F1B's, and it is faster."""
    for p, m, s in ASKED:
        ours = late(p, 2, m, s, replicas=2, hold=True, costs=costs)
        assert program_problems(ours, buffers=receive_buffers(ours)) == []
        found, theirs = simulate(ours, costs), simulate(seq1f1b(p, m, s), costs)
        assert max(found.peaks) <= max(theirs.peaks) + 1e-9
        assert found.makespan * 1.06 < theirs.makespan


def test_held_gains_with_attention_and_links() -> None:
    """Up to 12 ranks, with every number of subsequences up to half of them, it is 1.18 times as fast so."""
    gains = [
        simulate(seq1f1b(p, m, s), LINKED).makespan
        / simulate(late(p, 2, m, s, replicas=2, hold=True, costs=LINKED), LINKED).makespan
        for p, m, s in ASKED
    ]
    assert exp(sum(map(log, gains)) / len(gains)) >= 1.18


def test_the_best_of_two_to_four_stages() -> None:
    """Up to 12 ranks, and any subsequences up to half of them, the fastest order at Seq1F1B's peak is 1.21 as fast."""
    gains: list[float] = []
    for p, m, s in ASKED:
        orders = [late(p, v, m, s, replicas=2, hold=True, costs=LINKED) for v in (2, 3, 4)]
        orders += [filled(uneven_bsipipe(p, v, m, s), LINKED) for v in (2, 4) if can_be_uneven(p, v, s)]
        theirs, found = simulate(seq1f1b(p, m, s), LINKED), [simulate(order, LINKED) for order in orders]
        assert all(max(each.peaks) <= max(theirs.peaks) + 1e-9 for each in found)
        gains.append(theirs.makespan / min(each.makespan for each in found))
    assert exp(sum(map(log, gains)) / len(gains)) >= 1.21


def test_large_orders_take_seconds() -> None:
    """100 ranks and 1,000 microbatches, neither subsequences a part of the ranks, are made in seconds."""
    began = time.process_time()
    assert max(peak_counts(held(100, 1, 1000, 3, replicas=2))) <= limit(100, 1, 3, replicas=2)
    assert time.process_time() - began < 30
