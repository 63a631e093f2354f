"""How a tensor sits on the mesh: one placement an axis, a layout for all axes."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from typing import TypeAlias


@dataclass(frozen=True)
class Replicate:
    """The same values on each rank of the axis."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Shard:
    """Equal parts along tensor dim `dim`, in rank order."""

    dim: int

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class Partial:
    """Each rank holds one term of a sum."""

    def __str__(self) -> str:
        return "P"


Placement: TypeAlias = Replicate | Shard | Partial


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where a value with `len(dims)` dims is.

    Attributes:
        dims: for each tensor dim the axes that cut it, outer first.
        partial: axes over which the value is an unfinished sum.
        grad: axes over which the *gradient* of the value is an unfinished sum although the value
            is whole there. A whole value whose gradient is whole, and a whole value whose gradient
            is a sum of the ranks' terms, are different layouts: leaving the second unreduced is
            a silently wrong gradient.
    """

    dims: tuple[tuple[str, ...], ...]
    partial: tuple[str, ...] = ()
    grad: tuple[str, ...] = ()

    def placement(self, axis: str) -> Placement:
        """What one axis does to the value."""
        if axis in self.partial:
            return Partial()
        for dim, axes in enumerate(self.dims):
            if axis in axes:
                return Shard(dim)
        return Replicate()

    def whole_over(self, axes: Container[str]) -> Layout:
        """The same, but whole over these axes, with a sum for its gradient: each rank's part has a term."""
        cut = tuple(axis for cuts in self.dims for axis in cuts if axis in axes)
        dims = tuple(tuple(axis for axis in cuts if axis not in axes) for cuts in self.dims)
        return replace(self, dims=dims, grad=(*self.grad, *cut))

    def kind(self, axis: str) -> str:
        """Value and gradient at once: S(i), P, R (whole, gradient a sum) or I (whole, gradient whole)."""
        placement = self.placement(axis)
        if not isinstance(placement, Replicate):
            return str(placement)
        return "R" if axis in self.grad else "I"
