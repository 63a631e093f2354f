"""`[strategy.packed_gather]`: each rank gathers the keys and values of a whole sequence, both in one message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar, final

from meshlang.strategy import DTYPE_BYTES, Collective, Context, Diagnostic, Edge, Plan, Strategy


@final
@dataclass(frozen=True, kw_only=True)
class PackedGather(Strategy):
    """Context parallelism by an all-gather of keys and values (Llama 3, arXiv 2407.21783, section 3.3.2).

    Both go as one message, where two redistributions of a plan would be two. The values at the
    borders of attention stay cut: what is gathered, and cut again, lives inside.
    """

    ops: ClassVar[str | None] = "meshlang_example.packed_gather_ops"

    axis: str = field(metadata={"says": "mesh axis that cuts the sequence"})

    def check(self, context: Context) -> Iterator[Diagnostic]:
        """The axis cuts a sequence that some module looks over, with keys and values of one shape."""
        plan = context.plan
        if self.axis not in plan.mesh.names:
            yield context.finding("unknown-axis", f"`{self.axis}` is no axis of the mesh", key="axis")
            return
        found = looked_over(plan, self.axis)
        if not found:
            yield context.finding("strategy-axis", f"no module looks over a sequence cut by `{self.axis}`", key="axis")
        for module, edges in found.items():
            if len({(edge.names, edge.shape, edge.dst.dims) for edge in edges}) > 1 or len(edges) != 2:
                message = f"`{module}` does not take keys and values of one shape"
                yield context.finding("strategy-axis", message, key="axis")
                return

    def apply(self, plan: Plan) -> Plan:
        """One message in the forward, and its adjoint in the backward; every value stays where it is."""
        if plan.mesh.size(self.axis) == 1:
            return plan
        found = looked_over(plan, self.axis)
        sent = [call for module, edges in found.items() for call in self._calls(plan, module, edges)]
        return replace(plan, collectives=(*plan.collectives, *sent))

    def _calls(self, plan: Plan, module: str, edges: tuple[Edge, ...]) -> Iterator[Collective]:
        parts = [elements(plan, edge) for edge in edges]
        size = plan.mesh.size(self.axis) * DTYPE_BYTES[plan.precision.compute]
        total = None if None in parts else sum(part for part in parts if part is not None) * size
        count, where = plan.sizes.accumulation, f"{module} keys and values"
        yield Collective(kind="all_gather", axis=self.axis, where=where, pass_="forward", bytes=total, count=count)
        yield Collective(kind="reduce_scatter", axis=self.axis, where=where, pass_="backward", bytes=total, count=count)


def looked_over(plan: Plan, axis: str) -> dict[str, tuple[Edge, ...]]:
    """Module -> its inputs that it looks over as whole sequences, which the axis cuts."""
    found: dict[str, tuple[Edge, ...]] = {}
    for edge in plan.edges:
        if edge.port != "output" and "seq" in edge.whole and axis in edge.dst.dims[edge.names.index(("seq",))]:
            found[edge.module] = (*found.get(edge.module, ()), edge)
    return found


def elements(plan: Plan, edge: Edge) -> int | None:
    """Of one rank's part of a value; None where the run's sizes are not known."""
    sizes = [
        None if size is None else size // plan.mesh.product(axes)
        for size, axes in zip(edge.shape, edge.dst.dims, strict=True)
    ]
    return None if None in sizes else prod(size for size in sizes if size is not None)
