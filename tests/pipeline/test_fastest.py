"""The fastest under a limit: bounds are bounds, and the answer is that of simulating everything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshlang.pipeline import fit
from meshlang.pipeline.compare import Candidate, Row, candidates, memory, own, row_of
from meshlang.pipeline.costs import Costs
from meshlang.pipeline.fit import Search, fitting, least_time, tried
from meshlang.pipeline.notation import program_of
from meshlang.pipeline.orders import one_f_one_b

COSTS = [
    Costs(),
    Costs(attention=0.4, split="flops", transfer=0.1, latency=0.02),
    Costs(attention=0.3, head=0.5, weights=0.3, backward=1.7, attention_backward=2),
    Costs(latency=0.05, transfer=0.02, latency_between=0.2, ranks_per_node=2, sync=1.5, sync_between=3),
]
SHAPES = [(2, 4), (4, 8), (3, 5)]


def mine(ranks: int, sequences: int) -> Candidate:
    """An order of a spec's own, under a name that no other has."""
    return own("csv", program_of(one_f_one_b(ranks, sequences)))


def exhaustive(rows: list[Row], search: Search) -> list[Row]:
    """Of all candidates, simulated, those within the limit by time, memory and place."""
    fits = [row for row in rows if memory(row, search.state) <= search.limit + 1e-9]
    assert all(row.timeline is not None for row in fits)
    fits.sort(key=lambda row: (round(row.timeline.makespan, 9) if row.timeline else 0, memory(row, search.state)))
    return fits[: search.most]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("costs", COSTS, ids=range(len(COSTS)))
def test_answer_is_that_of_simulating_everything(shape: tuple[int, int], costs: Costs) -> None:
    """Rows, their order and their figures are those of the whole search, at each limit."""
    ours = mine(*shape)
    shared = replace(costs, shares=ours.numbers.ranks)
    every = tried(ours, Search(limit=0, stages=16, parts=(1, 2, 4)), shared)
    rows = [row_of(each, costs, ours.numbers.ranks) for each in every]
    for limit, state in ((1e9, 0.0), (2.0, 0.0), (1.0, 0.0), (3.0, 1.0), (0.01, 0.0)):
        search = Search(limit=limit, state=state, stages=16, parts=(1, 2, 4), most=5)
        found, whole = fitting(ours, costs, search), exhaustive(rows, search)
        assert [(r.candidate.name, r.candidate.numbers, r.timeline) for r in found] == [
            (r.candidate.name, r.candidate.numbers, r.timeline) for r in whole
        ]
    assert found == []


@pytest.mark.parametrize("costs", COSTS, ids=range(len(COSTS)))
def test_no_program_ends_before_its_bound(costs: Costs) -> None:
    """Each candidate's makespan is at least its bound, and without links some are as short as it."""
    met = 0
    for p, m in SHAPES:
        at = replace(mine(p, m).numbers, chunks=2, subsequences=2)
        for each in candidates(at):
            row = row_of(each, costs, p)
            if row.timeline is not None:
                bound = least_time(each, replace(costs, shares=p))
                assert 0.5 * row.timeline.makespan < bound <= row.timeline.makespan + 1e-9, each.name
                met += bound > row.timeline.makespan - 1e-9
    assert met > 0 or costs != Costs()


def test_few_are_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot win is not simulated; all are counted as done."""
    simulated: list[str] = []
    real, ticks = fit.simulated, [0]

    def seen(candidate: Candidate, program: object, costs: Costs) -> Row:
        simulated.append(candidate.name)
        return real(candidate, program, costs)  # pyright: ignore[reportArgumentType]

    def tick() -> None:
        ticks[0] += 1

    monkeypatch.setattr(fit, "simulated", seen)
    search = Search(limit=1e9, stages=32, parts=(1, 2, 4, 8))
    assert len(fitting(mine(8, 16), Costs(), search, tick)) == 8
    assert ticks == [len(tried(mine(8, 16), search))]
    assert 8 <= len(simulated) < ticks[0] / 4
