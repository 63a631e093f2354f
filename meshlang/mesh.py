"""The device mesh as names and sizes; no devices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod

#: Default order of the known axes, outermost first.
KNOWN_AXES = ("pp", "dp", "cp", "block", "ep", "tp")


@dataclass(frozen=True, kw_only=True)
class MeshAxis:
    """A named direction of the mesh; `size` ranks lie along it."""

    name: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """Axes, outermost first: rank = ((c0 * s1 + c1) * s2 + c2) ... of coordinates c and sizes s."""

    axes: tuple[MeshAxis, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Axis names, outermost first."""
        return tuple(axis.name for axis in self.axes)

    @cached_property
    def _sizes(self) -> dict[str, int]:
        return {axis.name: axis.size for axis in self.axes}

    @property
    def ranks(self) -> int:
        """Product of all sizes."""
        return prod(axis.size for axis in self.axes)

    def size(self, name: str) -> int:
        """Ranks along an axis; 1 for an axis that the mesh lacks."""
        return self._sizes.get(name, 1)

    def product(self, names: Iterable[str]) -> int:
        """Ranks of the sub-mesh that these axes span."""
        return prod(self.size(name) for name in names)

    def coordinate(self, rank: int) -> dict[str, int]:
        """Axis name -> coordinate of one rank."""
        assert 0 <= rank < self.ranks, f"rank {rank} of {self.ranks}"
        found: dict[str, int] = {}
        for axis in reversed(self.axes):
            rank, found[axis.name] = divmod(rank, axis.size)
        return {name: found[name] for name in self.names}

    def rank(self, coordinate: dict[str, int]) -> int:
        """The rank at a coordinate; rank(coordinate(r)) == r."""
        found = 0
        for axis in self.axes:
            found = found * axis.size + coordinate[axis.name]
        return found

    def group(self, rank: int, name: str) -> tuple[int, ...]:
        """Ranks that differ from `rank` along one axis only, in order of that coordinate."""
        here = self.coordinate(rank)
        return tuple(self.rank({**here, name: c}) for c in range(self.size(name)))
