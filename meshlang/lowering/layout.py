"""Layouts of a plan in DTensor's words, and the single-axis moves between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

from .. import placement as words
from ..placement import Layout
from .errors import LoweringError


@dataclass(frozen=True, kw_only=True)
class Move:
    """A change of placement along one axis, for the value and for its gradient."""

    axis: str
    src: Placement
    dst: Placement
    grad_src: Placement
    grad_dst: Placement


def placements(layout: Layout, axes: Sequence[str]) -> tuple[Placement, ...]:
    """What each axis does to a value of this layout."""
    return tuple(_of_value(layout, axis) for axis in axes)


def grad_placements(layout: Layout, axes: Sequence[str]) -> tuple[Placement, ...]:
    """What each axis does to the gradient of a value of this layout.

    The gradient of a sum's term is whole; a whole value's gradient is a sum where the layout
    says so.
    """
    return tuple(_of_gradient(layout, axis) for axis in axes)


def _of_value(layout: Layout, axis: str) -> Placement:
    placement = layout.placement(axis)
    if isinstance(placement, words.Shard):
        return Shard(placement.dim)
    return Partial() if isinstance(placement, words.Partial) else Replicate()


def _of_gradient(layout: Layout, axis: str) -> Placement:
    placement = _of_value(layout, axis)
    if isinstance(placement, Shard):
        return placement
    return Partial() if layout.kind(axis) == "R" else Replicate()


def moves(src: Layout, dst: Layout, axes: Sequence[str]) -> tuple[Move, ...]:
    """The moves from `src` to `dst`, each along one axis: inner cuts are undone first, outer ones made first.

    Raises:
        LoweringError: no such sequence leads to `dst`.
    """
    changed = [axis for axis in axes if src.kind(axis) != dst.kind(axis)]
    undo = [axis for axis in reversed(changed) if isinstance(src.placement(axis), words.Shard)]
    order = undo + [axis for axis in changed if axis not in undo]
    dims = [list(_among(cuts, axes)) for cuts in src.dims]
    for axis in order:
        _recut(dims, axis, src, dst)
    if [tuple(cuts) for cuts in dims] != [_among(cuts, axes) for cuts in dst.dims]:
        raise LoweringError([f"no single-axis moves lead from {src} to {dst}"])
    return tuple(_move(src, dst, axis) for axis in order)


def _among(cuts: Sequence[str], axes: Sequence[str]) -> tuple[str, ...]:
    return tuple(axis for axis in cuts if axis in axes)


def _recut(dims: list[list[str]], axis: str, src: Layout, dst: Layout) -> None:
    """Take the axis out of its dim, where it must be innermost, and put it innermost into another."""
    before, after = src.placement(axis), dst.placement(axis)
    if isinstance(before, words.Shard) and dims[before.dim].pop() != axis:
        raise LoweringError([f"axis {axis} cuts dim {before.dim} of {src} outside another that stays"])
    if isinstance(after, words.Shard):
        dims[after.dim].append(axis)


def _move(src: Layout, dst: Layout, axis: str) -> Move:
    return Move(
        axis=axis,
        src=_of_value(src, axis),
        dst=_of_value(dst, axis),
        grad_src=_of_gradient(src, axis),
        grad_dst=_of_gradient(dst, axis),
    )
