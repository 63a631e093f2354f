"""Tensors of a plan: which axes cut each dim, who decided that, and which part a rank has."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from ..mesh import Mesh
from ..placement import Layout


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Who decided: a line of a spec (`by` is its level), a card, a strategy."""

    by: str
    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class Dim:
    """One tensor dim: the names of its factors, outer first, and the axes that cut it, outer first.

    Only the outermost factor is cut; `units` is its count.
    """

    names: tuple[str, ...]
    size: int
    units: int
    axes: tuple[str, ...]
    origin: Origin

    @property
    def text(self) -> str:
        """As a card writes it."""
        return self.names[0] if len(self.names) == 1 else f"({' '.join(self.names)})"


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A parameter or buffer of the model.

    Attributes:
        dims: with the axes that cut each while computing.
        stored: axes that also cut dim 0 at rest, inside the computing cut, as one group.
        grad: axes over which the gradient that one rank computes is a term of a sum.
        tied: other names of the same tensor.
    """

    fqn: str
    kind: Literal["parameter", "buffer"]
    dims: tuple[Dim, ...]
    stored: tuple[str, ...] = ()
    grad: tuple[str, ...] = ()
    tied: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape."""
        return tuple(dim.size for dim in self.dims)

    @property
    def layout(self) -> Layout:
        """While computing."""
        return Layout(dims=tuple(dim.axes for dim in self.dims), grad=self.grad)

    def compute_shape(self, mesh: Mesh, coordinate: dict[str, int]) -> tuple[int, ...]:
        """Shape of the part that the rank at `coordinate` computes with."""
        return tuple(_local(dim, mesh, coordinate) for dim in self.dims)

    def local_shape(self, mesh: Mesh, coordinate: dict[str, int]) -> tuple[int, ...]:
        """Shape of the part that the rank at `coordinate` keeps at rest.

        Dim 0 is cut as torch's FSDP does: parts of ceil(n / k) rows, the last ones shorter or empty.
        """
        shape = self.compute_shape(mesh, coordinate)
        if not self.stored:
            return shape
        index = 0
        for axis in self.stored:
            index = index * mesh.size(axis) + coordinate[axis]
        return (chunk(shape[0], mesh.product(self.stored), index), *shape[1:])


def chunk(size: int, parts: int, index: int) -> int:
    """Length of part `index` when `size` is cut in parts of ceil(size / parts), as torch.chunk does."""
    step = -(-size // parts)
    return max(0, min(size, step * (index + 1)) - step * index)


def _local(dim: Dim, mesh: Mesh, coordinate: dict[str, int]) -> int:
    units = dim.units
    for axis in dim.axes:
        units = chunk(units, mesh.size(axis), coordinate[axis])
    return units * (dim.size // dim.units)


def numel(shape: tuple[int, ...]) -> int:
    """Elements of a tensor of this shape."""
    return prod(shape)
