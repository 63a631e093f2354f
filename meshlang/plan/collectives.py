"""Plan -> every collective of one training step, with axis and bytes, forward and backward.

Four sources, and no other: values redistributed at module boundaries, parameters gathered and
gradients summed over the axes that carry the batch, the loss over a cut vocabulary, and what
strategies put into the plan because their modules communicate inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..language.spec import DTYPE_BYTES
from ..mesh import Mesh
from ..placement import Layout
from .derive import local_numel
from .fold import fold
from .ir import Collective, Edge, Kind, Pass, Plan, StateBytes, Tensor, Unit, numel


@dataclass(frozen=True)
class Move:
    """A redistribution over one axis: kinds as in Layout.kind, and what it calls in either pass."""

    axis: str
    src: str
    dst: str

    def calls(self) -> tuple[tuple[Pass, Kind], ...]:
        """The collectives of this move. A missing entry is local work: a slice, or nothing.

        The backward of a move takes the gradient from dst to src: the gradient of S is S, of P is
        whole, of a whole value with summed gradient (R) is P, of one with whole gradient (I) whole.
        """
        src, dst = self.src[0], self.dst[0]
        if src == "S" and dst == "S":
            return (("forward", "all_to_all"), ("backward", "all_to_all"))
        return _CALLS[src, dst]


_CALLS: dict[tuple[str, str], tuple[tuple[Pass, Kind], ...]] = {
    ("S", "R"): (("forward", "all_gather"), ("backward", "reduce_scatter")),
    ("S", "I"): (("forward", "all_gather"),),
    ("P", "S"): (("forward", "reduce_scatter"), ("backward", "all_gather")),
    ("P", "I"): (("forward", "all_reduce"),),
    ("P", "R"): (("forward", "all_reduce"), ("backward", "all_reduce")),
    ("I", "R"): (("backward", "all_reduce"),),
    ("I", "S"): (("backward", "all_gather"),),
}


def moves(edge: Edge, mesh: Mesh) -> tuple[Move, ...]:
    """What an edge redistributes, an entry for each axis of size > 1 that it moves over."""
    kinds = ((axis, edge.src.kind(axis), edge.dst.kind(axis)) for axis in mesh.names if mesh.size(axis) > 1)
    return tuple(Move(axis, src, dst) for axis, src, dst in kinds if src != dst)


def known_move(move: Move) -> bool:
    """False for a move that has no meaning, such as turning a whole value into a sum."""
    return (move.src[0] == "S" and move.dst[0] == "S") or (move.src[0], move.dst[0]) in _CALLS


def finish(plan: Plan) -> Plan:
    """The plan with its collectives and state bytes; those that strategies put there stay."""
    return replace(plan, collectives=tuple(_folded(plan)), state_bytes=state_bytes(plan))


def _folded(plan: Plan) -> Iterator[Collective]:
    """Equal calls of different layers as one entry."""
    groups: dict[tuple[str, ...], list[Collective]] = {}
    single = (*plan.collectives, *_edges(plan), *_loss(plan), *(call for unit in plan.units for call in _unit(plan, unit)))
    known = {call.where.partition(" ")[0] for call in single}
    for call in single:
        tail = call.where.partition(" ")[2]
        key = (call.kind, call.axis, _depth(call.where), tail, call.pass_, str(call.bytes))
        groups.setdefault(key, []).append(call)
    for calls in groups.values():
        heads = [call.where.partition(" ")[0] for call in calls]
        tail = calls[0].where.partition(" ")[2]
        where = ", ".join(fold(heads, known)) + (f" {tail}" if tail else "")
        yield replace(calls[0], where=where, count=sum(call.count for call in calls))


def _depth(where: str) -> str:
    from .fold import template

    return template(where.partition(" ")[0])


def _edges(plan: Plan) -> Iterator[Collective]:
    for edge in plan.edges:
        for move in moves(edge, plan.mesh):
            size = _larger(edge, plan.mesh)
            for pass_, kind in move.calls():
                yield Collective(
                    kind=kind,
                    axis=move.axis,
                    where=f"{edge.module} {edge.port}",
                    pass_=pass_,
                    bytes=None if size is None else size * DTYPE_BYTES[plan.precision.compute],
                    count=plan.sizes.accumulation,
                )


def _larger(edge: Edge, mesh: Mesh) -> int | None:
    """Elements of the larger side, on one rank."""
    src, dst = (local_numel(edge.shape, layout, mesh) for layout in (edge.src, edge.dst))
    return None if src is None or dst is None else max(src, dst)


def _loss(plan: Plan) -> Iterator[Collective]:
    """A cut vocabulary costs three all-reduces of one number a token: maximum, sum of exponentials, target."""
    if plan.loss is None:
        return
    layout = plan.loss.layout
    rows = Layout(dims=tuple(axes for i, axes in enumerate(layout.dims) if i != plan.loss.vocab))
    shape = tuple(size for i, size in enumerate(plan.loss.shape) if i != plan.loss.vocab)
    tokens = local_numel(shape, rows, plan.mesh)
    width = DTYPE_BYTES["float64" if plan.precision.compute == "float64" else "float32"]
    for axis in layout.dims[plan.loss.vocab]:
        if plan.mesh.size(axis) > 1:
            yield Collective(
                kind="all_reduce",
                axis=axis,
                where="loss",
                pass_="forward",
                bytes=None if tokens is None else tokens * width,
                count=3 * plan.sizes.accumulation,
            )


def _unit(plan: Plan, unit: Unit) -> Iterator[Collective]:
    """Gather before the forward (and again before the backward when freed), sum after the backward."""
    where = "+".join(unit.modules) or "model"
    groups: dict[tuple[str, ...], list[Tensor]] = {}
    for fqn in unit.tensors:
        tensor = plan.by_fqn[fqn]
        groups.setdefault(tensor.stored, []).append(tensor)
        yield from _over_tensor_axes(plan, tensor, where)
    for stored, tensors in groups.items():
        yield from _over_data_axes(plan, unit, stored, tensors, where)


def _over_tensor_axes(plan: Plan, tensor: Tensor, where: str) -> Iterator[Collective]:
    """A weight that is whole over an axis that cuts its module's activations: its gradient is summed by itself."""
    origin = {axis: 0 for axis in plan.mesh.names}
    size = numel(tensor.compute_shape(plan.mesh, origin)) * DTYPE_BYTES[plan.precision.compute]
    for axis in tensor.grad:
        if plan.mesh.size(axis) > 1 and plan.role(axis) == "tensor":
            yield _gradient("all_reduce", axis, f"{tensor.fqn} gradient", size, plan)


def _over_data_axes(
    plan: Plan, unit: Unit, stored: tuple[str, ...], tensors: list[Tensor], where: str
) -> Iterator[Collective]:
    parts = plan.mesh.product(stored)
    padded = sum(_padded(plan, tensor, parts) for tensor in tensors)
    wide = DTYPE_BYTES[plan.precision.reduce]
    if parts > 1:
        gathered = padded * DTYPE_BYTES[plan.precision.compute]
        name = _joined(plan, stored)
        passes: tuple[Pass, ...] = ("forward", "backward") if unit.after_forward == "free" else ("forward",)
        for pass_ in passes:
            yield Collective(
                kind="all_gather",
                axis=name,
                where=f"{where} weights",
                pass_=pass_,
                bytes=gathered,
                count=plan.sizes.accumulation,
            )
        yield _gradient("reduce_scatter", name, f"{where} gradients", padded * wide, plan)
    summed = {axis for tensor in tensors for axis in tensor.grad if axis not in stored}
    whole = [axis for axis in plan.axes_of("data", "context") if axis in summed and plan.mesh.size(axis) > 1]
    if whole:
        yield _gradient("all_reduce", "+".join(whole), f"{where} gradients", padded // parts * wide, plan)


def _joined(plan: Plan, axes: tuple[str, ...]) -> str:
    return "+".join(axis for axis in axes if plan.mesh.size(axis) > 1)


def _padded(plan: Plan, tensor: Tensor, parts: int) -> int:
    """Elements of a tensor in the unit's buffer: dim 0 is padded to a multiple of the parts."""
    origin = {axis: 0 for axis in plan.mesh.names}
    rows, *rest = tensor.compute_shape(plan.mesh, origin) or (1,)
    return -(-rows // parts) * parts * numel(tuple(rest))


def _gradient(kind: Kind, axis: str, where: str, size: int, plan: Plan) -> Collective:
    return Collective(kind=kind, axis=axis, where=where, pass_="backward", bytes=size, count=plan.sizes.accumulation)


def state_bytes(plan: Plan) -> StateBytes:
    """Parameters, gradients and AdamW's two moments at rest, on the fullest rank: coordinate 0 on every axis."""
    origin = {axis: 0 for axis in plan.mesh.names}
    width = DTYPE_BYTES[plan.precision.state]
    elements = sum(numel(t.local_shape(plan.mesh, origin)) for t in plan.tensors if t.kind == "parameter")
    return StateBytes(parameters=elements * width, gradients=elements * width, optimizer=2 * elements * width)
