"""A plan as text, equal layers told once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from ..plan.collectives import moves
from ..plan.fold import fold, template
from ..plan.ir import Collective, Edge, Plan, Precision, Tensor
from ..plan.promises import said
from .tables import bytes_text, shape_text, table


def plan_text(plan: Plan, *, rank: int = 0) -> str:
    """Mesh, tensors with rank `rank`'s shapes, redistributions, collectives, state."""
    parts = (_head(plan), _tensors(plan, rank), _edges(plan), _collectives(plan), _state(plan), _foot(plan))
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _head(plan: Plan) -> list[str]:
    axes = " x ".join(f"{axis.name} {axis.size}" for axis in plan.mesh.axes)
    lines = [f"{plan.model} on {plan.ranks} ranks: {axes}"]
    carried = [f"{name} carries {_ROLES[role]}" for name, role in plan.roles if plan.mesh.size(name) > 1]
    if carried:
        lines.append("  " + ", ".join(carried))
    sizes, precision = plan.sizes, plan.precision
    if sizes.batch is not None and sizes.seq is not None:
        steps = f", {sizes.accumulation} forward-backwards" if sizes.accumulation > 1 else ""
        lines.append(f"  a step: {sizes.batch} sequences of {sizes.seq} tokens{steps}")
    lines.append("  " + ", ".join(_type(word, precision) for word in ("state", "compute", "reduce")))
    lines += [f"  strategy {use.name} over {use.axis}" for use in plan.strategies]
    if plan.pipeline is not None:
        lines.append(f"  pipeline {plan.pipeline.schedule}")
    return lines


def _type(word: str, precision: Precision) -> str:
    return f"{word} {getattr(precision, word)}" + ("" if word in precision.written else " (assumed)")


_ROLES = {
    "data": "the batch",
    "context": "the sequence",
    "tensor": "weights",
    "pipeline": "stages",
    "none": "nothing",
}


def grouped(items: Iterable[Tensor], key: Callable[[Tensor], Hashable]) -> list[list[Tensor]]:
    """Tensors that are alike but for the layer's number, together."""
    groups: dict[Hashable, list[Tensor]] = {}
    for item in items:
        groups.setdefault((template(item.fqn), key(item)), []).append(item)
    return list(groups.values())


def _tensors(plan: Plan, rank: int) -> list[str]:
    coordinate = plan.mesh.coordinate(rank)
    names = [tensor.fqn for tensor in plan.tensors]

    def alike(tensor: Tensor) -> Hashable:
        return tensor.shape, tuple((d.text, d.axes) for d in tensor.dims), tensor.stored, tensor.tied

    rows = []
    for group in grouped(plan.tensors, alike):
        first = group[0]
        rows.append(
            [
                ", ".join(fold([t.fqn for t in group], names)),
                " ".join(dim.text for dim in first.dims),
                shape_text(first.shape),
                shape_text(first.local_shape(plan.mesh, coordinate)),
                *(said(first, axis) for axis in plan.mesh.names),
            ]
        )
    header = ["tensor", "dims", "global", f"rank {rank}", *plan.mesh.names]
    return ["tensors", *table(header, rows)]


def _edges(plan: Plan) -> list[str]:
    found: dict[tuple[str, ...], list[Edge]] = {}
    for edge in plan.edges:
        for move in moves(edge, plan.mesh):
            key = (template(edge.module), edge.port, move.axis, move.src, move.dst)
            found.setdefault(key, []).append(edge)
    if not found:
        return []
    modules = [edge.module for edge in plan.edges]
    rows = [
        [f"{', '.join(fold([e.module for e in edges], modules))} {port}", axis, f"{src} -> {dst}", _dims(edges[0])]
        for (_, port, axis, src, dst), edges in found.items()
    ]
    return ["redistributed at module boundaries", *table(["where", "axis", "from -> to", "dims"], rows)]


def _dims(edge: Edge) -> str:
    return " ".join(f[0] if len(f) == 1 else f"({' '.join(f)})" for f in edge.names)


def _collectives(plan: Plan) -> list[str]:
    if not plan.collectives:
        return ["collectives a step", "  none"]
    rows = [
        [call.pass_, call.kind, call.axis, str(call.count), bytes_text(call.bytes), call.where]
        for call in sorted(plan.collectives, key=lambda call: call.pass_ != "forward")
    ]
    header = ["pass", "collective", "axis", "calls", "bytes each", "where"]
    return ["collectives a step", *table(header, rows, right=frozenset({3, 4})), *_by_axis(plan.collectives)]


def _by_axis(calls: Sequence[Collective]) -> list[str]:
    totals: dict[str, tuple[int, int | None]] = {}
    for call in calls:
        count, size = totals.get(call.axis, (0, 0))
        more = None if call.bytes is None or size is None else size + call.bytes * call.count
        totals[call.axis] = (count + call.count, more)
    return [f"  over {axis}: {count} calls, {bytes_text(size)}" for axis, (count, size) in totals.items()]


def _state(plan: Plan) -> list[str]:
    state = plan.state_bytes
    if state is None:
        return []
    rows = [
        ["parameters", bytes_text(state.parameters)],
        ["gradients", bytes_text(state.gradients)],
        ["optimizer (two moments)", bytes_text(state.optimizer)],
        ["total", bytes_text(state.total)],
    ]
    return ["state at rest, fullest rank (exact)", *table(["", ""], rows, right=frozenset({1}))[1:]]


def _foot(plan: Plan) -> list[str]:
    lines = []
    if plan.sizes.batch is None or plan.sizes.seq is None:
        lines.append("? : not known without `batch` and `seq` in [sizes]")
    if len(plan.precision.written) < 3:
        lines.append("(assumed): torchtitan's default, since [precision] does not say; a launch takes the recipe's")
    lines.append("S(i): cut along dim i; R: whole; stored S(0): also cut at rest; P: a sum to finish;")
    lines.append("I: whole, and so is its gradient; R on a value: whole, its gradient a sum.")
    lines.append("bytes: the whole tensor on the larger side. Scalars that a trainer reduces for its log,")
    lines.append("its token count and its gradient norm are not listed.")
    return lines
