"""Layouts in DTensor's words, and the moves between two of them."""

import pytest
from torch.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

from meshlang.lowering.errors import LoweringError
from meshlang.lowering.layout import grad_placements, moves, placements
from meshlang.placement import Layout

AXES = ("dp", "cp", "tp")


def layout(*dims: tuple[str, ...], partial: tuple[str, ...] = (), grad: tuple[str, ...] = ()) -> Layout:
    """A layout, dim by dim."""
    return Layout(dims=dims, partial=partial, grad=grad)


def test_each_axis_has_its_placement() -> None:
    """A cut is a Shard of its dim, a sum is Partial, the rest is Replicate."""
    value = layout(("dp",), ("cp",), (), partial=("tp",))
    assert placements(value, AXES) == (Shard(0), Shard(1), Partial())


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (layout((), ("tp",)), Shard(1)),
        (layout((), (), partial=("tp",)), Replicate()),
        (layout((), (), grad=("tp",)), Partial()),
        (layout((), ()), Replicate()),
    ],
    ids=["part", "term", "whole, gradient a sum", "whole, gradient whole"],
)
def test_gradient_has_its_own_placement(value: Layout, wanted: Placement) -> None:
    """The gradient of a part is a part, of a term whole, of a whole value what the layout says."""
    assert grad_placements(value, ("tp",)) == (wanted,)


def test_equal_layouts_do_not_move() -> None:
    """Nothing happens to a value that stays."""
    value = layout(("dp",), ("cp", "tp"))
    assert moves(value, value, AXES) == ()


def test_inner_cut_is_undone_first() -> None:
    """Of two axes that cut one dim, the inner one is gathered before the outer one."""
    found = moves(layout((), ("cp", "tp")), layout((), ()), AXES)
    assert [(move.axis, move.src, move.dst) for move in found] == [
        ("tp", Shard(1), Replicate()),
        ("cp", Shard(1), Replicate()),
    ]


def test_outer_cut_is_made_first() -> None:
    """Of two axes that will cut one dim, the outer one cuts before the inner one."""
    assert [move.axis for move in moves(layout((), ()), layout((), ("cp", "tp")), AXES)] == ["cp", "tp"]


def test_move_carries_its_gradient() -> None:
    """A gathered value whose gradient is a sum gets a part of that sum back."""
    (move,) = moves(layout(("tp",)), layout((), grad=("tp",)), AXES)
    assert (move.grad_dst, move.grad_src) == (Partial(), Shard(0))


def test_outer_cut_cannot_leave_alone() -> None:
    """An axis that another cuts inside of is not gathered before it."""
    with pytest.raises(LoweringError, match="axis cp cuts dim 0"):
        moves(layout(("cp", "tp")), layout(("tp",)), AXES)


def test_outer_cut_cannot_come_late() -> None:
    """An axis is not put outside of one that already cuts the dim."""
    with pytest.raises(LoweringError, match="no single-axis moves"):
        moves(layout(("tp",)), layout(("cp", "tp")), AXES)
