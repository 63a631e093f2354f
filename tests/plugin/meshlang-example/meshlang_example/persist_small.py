"""`[strategy.persist_small]`: small parameters stay whole where large ones are stored in parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal, final

from meshlang.strategy import Context, Diagnostic, Plan, Strategy, Tensor


@final
@dataclass(frozen=True, kw_only=True)
class PersistSmall(Strategy):
    """Parameters of less than `below` are not cut at rest over `axis`.

    Gathering them takes more time than keeping them takes memory. The parameter persistence
    threshold of ZeRO-3 (Rajbhandari et al. 2020, as DeepSpeed has it) is this.
    """

    axis: str = field(metadata={"says": "axis of [store]"})
    below: int = field(default=1000, metadata={"says": "size from which on a parameter is cut"})
    of: Literal["elements", "rows"] = field(default="elements", metadata={"says": "what `below` counts"})

    def check(self, context: Context) -> Iterator[Diagnostic]:
        """The axis cuts parameters at rest, and some of them are small."""
        cut = [tensor for tensor in context.plan.tensors if self.axis in tensor.stored]
        if self.axis not in context.plan.mesh.names:
            yield context.finding("unknown-axis", f"`{self.axis}` is no axis of the mesh", key="axis")
        elif not cut:
            yield context.finding("decides-nothing", f"nothing is cut at rest over `{self.axis}`", key="axis")
        elif not any(map(self._small, cut)):
            least = min(map(self._size, cut))
            message = f"no parameter has less than {self.below} {self.of}; the smallest has {least}"
            yield context.finding("decides-nothing", message, key="below")

    def apply(self, plan: Plan) -> Plan:
        """Small parameters are no longer stored over the axis."""
        return replace(plan, tensors=tuple(self._kept(tensor) for tensor in plan.tensors))

    def _kept(self, tensor: Tensor) -> Tensor:
        if not self._small(tensor):
            return tensor
        return replace(tensor, stored=tuple(axis for axis in tensor.stored if axis != self.axis))

    def _small(self, tensor: Tensor) -> bool:
        return self._size(tensor) < self.below

    def _size(self, tensor: Tensor) -> int:
        return prod(tensor.shape) if self.of == "elements" else tensor.shape[0]
