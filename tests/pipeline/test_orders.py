"""Orders of actions, held against those that torch makes, and against their own laws."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from meshlang.pipeline import orders, v_orders
from meshlang.pipeline.actions import Action, read_cell
from meshlang.pipeline.laws import order_problems, style_of

NUMBERS = [(ranks, microbatches) for ranks, microbatches in product((1, 2, 3, 4), range(1, 13))]
ROUNDS = [(p, v, m) for (p, m), v in product(NUMBERS, (1, 2, 3, 4)) if m % max(1, m // p) == 0]


#: torch's schedules whose stages turn back.
V_NAMES = ("ZBVZeroBubble", "DualPipeV")


def _torch_order(name: str, ranks: int, chunks: int, microbatches: int) -> orders.Order:
    """The order that torch's schedule of this name holds."""
    import torch
    from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class

    made: Any = get_schedule_class(name)
    stages = [
        SimpleNamespace(
            num_stages=ranks * chunks,
            group_size=ranks,
            group_rank=0,
            stage_index=chunk * ranks if name not in V_NAMES else chunk * (2 * ranks - 1),
            submod=torch.nn.Identity(),
        )
        for chunk in range(chunks)
    ]
    single = issubclass(made, PipelineScheduleSingle)
    schedule = made(stages[0] if single else stages, microbatches, lambda *_: None)
    found = schedule._get_pipeline_order() if single else schedule.pipeline_order
    rows = ([str(action) for action in found[rank] if action is not None] for rank in range(ranks))
    return tuple(tuple(action for action in row if "REDUCE" not in action) for row in rows)


@pytest.mark.parametrize(("ranks", "microbatches"), NUMBERS)
def test_gpipe_is_torchs(ranks: int, microbatches: int) -> None:
    """GPipe's order is the one that torch holds."""
    assert orders.gpipe(ranks, microbatches) == _torch_order("GPipe", ranks, 1, microbatches)


@pytest.mark.parametrize(("ranks", "microbatches"), [(p, m) for p, m in NUMBERS if 1 < p <= m])
def test_one_f_one_b_is_torchs(ranks: int, microbatches: int) -> None:
    """1F1B's order is torch's, but for the last rank, whose forwards torch 2.14 draws one too high."""
    ours, theirs = orders.one_f_one_b(ranks, microbatches), _torch_order("1F1B", ranks, 1, microbatches)
    assert ours[:-1] == theirs[:-1]
    assert f"{ranks - 1}F{microbatches}" in theirs[-1]


@pytest.mark.parametrize(("ranks", "chunks", "microbatches"), ROUNDS)
def test_interleaved_is_torchs(ranks: int, chunks: int, microbatches: int) -> None:
    """Both interleaved orders are the ones that torch holds."""
    numbers = (ranks, chunks, microbatches)
    assert orders.interleaved(*numbers) == _torch_order("Interleaved1F1B", *numbers)
    assert orders.interleaved_zero_bubble(*numbers) == _torch_order("InterleavedZeroBubble", *numbers)


@pytest.mark.parametrize(("ranks", "microbatches"), NUMBERS)
def test_v_orders_are_torchs(ranks: int, microbatches: int) -> None:
    """Orders in the shape of a V are torch's, and come to their end."""
    made = {"ZBVZeroBubble": v_orders.zbv}
    if microbatches >= 2 * ranks:
        made["DualPipeV"] = v_orders.dualpipev
    for name, order in made.items():
        ours = order(ranks, microbatches)
        assert ours == _torch_order(name, ranks, 2, microbatches)
        assert order_problems(_cells(ours), ranks=ranks, microbatches=microbatches) == []


@pytest.mark.parametrize(("ranks", "chunks", "microbatches"), ROUNDS)
def test_orders_come_to_their_end(ranks: int, chunks: int, microbatches: int) -> None:
    """Every order does each action once, and no rank waits for ever."""
    made = [
        orders.interleaved(ranks, chunks, microbatches),
        orders.interleaved_zero_bubble(ranks, chunks, microbatches),
    ]
    if chunks == 1:
        made += [orders.gpipe(ranks, microbatches), orders.one_f_one_b(ranks, microbatches)]
    for order in made:
        assert order_problems(_cells(order), ranks=ranks, microbatches=microbatches) == []


def _cells(order: orders.Order) -> list[list[tuple[Action, ...]]]:
    return [[read_cell(cell) for cell in row] for row in order]


#: Two ranks, a V of four stages, two microbatches.
V = (
    ("0F0", "0F1", "", "3F0", "3B0", "0B0", "3F1", "3I1", "0B1", "3W1"),
    ("1F0", "2F0", "1F1", "2B0", "(2F1;1B0)OVERLAP_F_B", "2I1", "1I1", "2W1", "1W1"),
)


def test_a_v_is_an_order() -> None:
    """Stages may turn back, a backward may be in two, and two actions may share a cell."""
    assert order_problems(_cells(V), ranks=2, microbatches=2) == []
    assert style_of({0: 0, 1: 1, 2: 1, 3: 0}, 2) == "v"
    assert style_of({0: 0, 1: 1, 2: 0, 3: 1}, 2) == "loop"
    assert style_of({0: 0, 1: 1, 2: 1, 3: 0, 4: 0, 5: 1}, 2) is None
    assert read_cell("(2F1;1B0)OVERLAP_F_B") == (Action(2, "F", 1), Action(1, "B", 0))


@pytest.mark.parametrize("text", ["F0", "0X0", "0F", "0SEND_F0", "0UNSHARD", "-1F0", "(0F0;x)OVERLAP_F_B"])
def test_what_is_no_action(text: str) -> None:
    """Sends and gathers are not written: they follow from the order."""
    with pytest.raises(ValueError, match="is no action"):
        read_cell(text)


GOOD = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1I1", "1W1"]]


@pytest.mark.parametrize(
    ("row", "cell", "text", "message"),
    [
        (0, 1, "0F0", "0F0 is there more than once"),
        (0, 0, "", "0F0 is missing"),
        (1, 4, "", "1W1 is missing"),
        (1, 3, "1B1", "1B1 is there whole and in halves"),
        (0, 1, "0F2", "0F2 is of microbatch 2, and there are 2"),
        (0, 1, "1F1", "stage 1 is on rank 0 and on rank 1"),
        (1, 0, "3F0", "stage 2 has no action"),
        (1, 0, "2F0", "3 stages do not divide over 2 ranks"),
    ],
)
def test_broken_orders_are_problems(row: int, cell: int, text: str, message: str) -> None:
    """Each law says what is wrong, with the action."""
    cells = [list(each) for each in GOOD]
    cells[row][cell] = text
    found = order_problems(_cells(tuple(map(tuple, cells))), ranks=2, microbatches=2)
    assert [each.message for each in found] == [message]


def test_order_inside_a_stage() -> None:
    """A backward before its forward, and a gradient of weights before that of the input, are problems."""
    early = [["0F0", "0B0"], ["1B0", "1F0"]]
    assert order_problems(_cells(tuple(map(tuple, early))), ranks=2, microbatches=1)[0].message.startswith(
        "1B0 stands before 1F0"
    )
    swapped = [["0F0", "0B0"], ["1F0", "1W0", "1I0"]]
    assert order_problems(_cells(tuple(map(tuple, swapped))), ranks=2, microbatches=1)[0].message.startswith(
        "1W0 stands before 1I0"
    )


def test_ranks_that_wait_for_each_other() -> None:
    """An order in which nobody can go on is found before anything starts."""
    cells = _cells((("0F0", "0B0", "0F1", "0B1"), ("1F0", "1F1", "1B0", "1B1")))
    found = order_problems(cells, ranks=2, microbatches=2)
    message = "no rank can go on: rank 0 waits at 0B0 for 1B0 of rank 1; rank 1 waits at 1F1 for 0F1 of rank 0"
    assert [each.message for each in found] == [message]


def test_rows_are_the_axis() -> None:
    """An order has a row for each rank of the pipeline."""
    found = order_problems(_cells((("0F0", "0B0"),)), ranks=2, microbatches=1)
    assert found[0].message.startswith("the order has 1 row, ")
