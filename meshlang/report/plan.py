"""A plan as text, equal layers told once."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence

from ..diagnostics import counted
from ..fold import fold, ranges, template
from ..plan.calls import calls_at
from ..plan.collectives import moves
from ..plan.cost import memory
from ..plan.ir import Collective, Edge, Plan, Precision, Tensor
from ..plan.promises import said
from ..plan.slices import lengths_of
from .blocks import blocks_text
from .schedule import subsequences_text
from .tables import bytes_text, shape_text, table


def plan_text(plan: Plan, *, rank: int = 0) -> str:
    """Mesh, tensors with rank `rank`'s shapes, redistributions, collectives, state."""
    parts = (
        _head(plan),
        _stages(plan),
        [] if plan.block is None else blocks_text(plan.block),
        _tensors(plan, rank),
        _edges(plan),
        _collectives(plan, rank),
        _state(plan),
        _memory(plan),
        _foot(plan),
    )
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _head(plan: Plan) -> list[str]:
    axes = " x ".join(f"{axis.name} {axis.size}" for axis in plan.mesh.axes)
    lines = [f"{plan.model} on {counted(plan.ranks, 'rank')}: {axes}"]
    carried = [f"{name} carries {ROLES[role]}" for name, role in plan.roles if plan.mesh.size(name) > 1]
    if carried:
        lines.append("  " + ", ".join(carried))
    sizes, precision = plan.sizes, plan.precision
    if sizes.batch is not None and sizes.seq is not None:
        steps = f", {sizes.accumulation} forward-backwards" if sizes.accumulation > 1 else ""
        lines.append(f"  a step: {counted(sizes.batch, 'sequence')} of {counted(sizes.seq, 'token')}{steps}")
    lines.append("  " + ", ".join(_type(word, precision) for word in ("state", "compute", "reduce")))
    lines += [f"  strategy {use.name} over {use.axis}" for use in plan.strategies]
    if plan.recompute:
        known = dict.fromkeys(edge.module for edge in plan.edges)
        lines.append(f"  recomputed in the backward: {', '.join(fold(plan.recompute, list(known)))}")
    if plan.pipeline is not None:
        lines.append(f"  pipeline {plan.pipeline.schedule}" + (_microbatches(plan) if plan.stages else ""))
    return lines


def _microbatches(plan: Plan) -> str:
    assert plan.pipeline is not None
    count = plan.pipeline.microbatches or 1
    text = f", {counted(len(plan.stages), 'stage')}, {counted(count, 'microbatch')}"
    text += f" of {subsequences_text(plan.slices, lengths_of(plan))}" if plan.slices > 1 else ""
    return text + (", two replicas" if plan.replicas > 1 else "")


def _stages(plan: Plan) -> list[str]:
    """The order that a value passes through, and where on the pipeline's axis each stage lies."""
    if not plan.stages:
        return []
    axis = "+".join(plan.axes_of("pipeline"))
    known = [module for stage in plan.stages for module in stage.modules]
    rows = [[str(s.index), ", ".join(map(str, s.coordinates)), ", ".join(fold(s.modules, known))] for s in plan.stages]
    lines = ["stages, first to last", *table(["stage", axis, "modules"], rows, right=frozenset({0, 1}))]
    use = plan.pipeline
    return [*lines, "", *_order(plan, axis)] if use is not None and (use.order or use.program) else lines


#: Characters of a rank's actions that are shown.
_WIDTH = 96


def _order(plan: Plan, axis: str) -> list[str]:
    """What each rank does, one action after the other."""
    assert plan.pipeline is not None
    program, order = plan.pipeline.program, plan.pipeline.order
    says = "actions: stage, Forward or Backward (or its halves Inputs, Weights), microbatch"
    if program is not None:
        order = tuple(tuple(map(str, row)) for row in program.order)
        says = "Forward or Backward (or its halves Inputs, Weights), microbatch.subsequence@stage, ^ of replica 1"
    rows = [[str(place), _shown(row)] for place, row in enumerate(order[:_MOST_RANKS])]
    lines = table([axis, says], rows)
    left = len(order) - _MOST_RANKS
    return ["order on each rank", *lines, *([f"  ... {left} more"] if left > 0 else [])]


#: Ranks of a pipeline whose actions are shown.
_MOST_RANKS = 16


def _shown(row: Sequence[str]) -> str:
    text = " ".join(row)
    if len(text) <= _WIDTH:
        return text
    cut = text[:_WIDTH].rpartition(" ")[0]
    return f"{cut} ... {len(row) - len(cut.split())} more"


def _type(word: str, precision: Precision) -> str:
    return f"{word} {getattr(precision, word)}" + ("" if word in precision.written else " (assumed)")


#: What an axis carries, in words.
ROLES = {
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
        cuts = tuple((d.text, d.axes) for d in tensor.dims)
        return tensor.shape, cuts, tensor.stored, tensor.tied, plan.holds(tensor, coordinate)

    rows = []
    for group in grouped(plan.tensors, alike):
        first = group[0]
        rows.append(
            [
                ", ".join(fold([t.fqn for t in group], names)),
                " ".join(dim.text for dim in first.dims),
                shape_text(first.shape),
                shape_text(first.local_shape(plan.mesh, coordinate)) if plan.holds(first, coordinate) else "-",
                *(_placed(group, axis, plan) for axis in plan.mesh.names),
            ]
        )
    header = ["tensor", "dims", "global", f"rank {rank}", *plan.mesh.names]
    return ["tensors", *table(header, rows)]


def _placed(group: Sequence[Tensor], axis: str, plan: Plan) -> str:
    """How an axis places tensors that are alike; a pipeline's ranks hold whole stages."""
    if axis in plan.axes_of("pipeline") and plan.stages:
        return f"stage {ranges(plan.stage_of[tensor.fqn].index for tensor in group)}"
    return said(group[0], axis)


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


def _collectives(plan: Plan, rank: int) -> list[str]:
    if not plan.collectives:
        return ["collectives a step", "  none"]
    found: dict[tuple[object, ...], list[Collective]] = {}
    for call in sorted(plan.collectives, key=lambda call: call.pass_ != "forward"):
        alike = call.where if call.stage is None else _template(call.where)
        key = call.pass_, call.kind, call.axis, call.count, call.bytes, alike, call.replica
        found.setdefault(key, []).append(call)
    rows = [
        [call.pass_, call.kind, call.axis, str(call.count), bytes_text(call.bytes), *_where(calls)]
        for calls in found.values()
        for call in calls[:1]
    ]
    header = ["pass", "collective", "axis", "calls", "bytes each", *(["stage"] if plan.stages else []), "where"]
    return ["collectives a step", *table(header, rows, right=frozenset({3, 4})), *_totals(plan, rank)]


def _where(calls: Sequence[Collective]) -> list[str]:
    """Stages that make the same calls are told once; the numbers of their layers are then left open."""
    stages = [call.stage for call in calls if call.stage is not None]
    if not stages:
        return [calls[0].where]
    where = calls[0].where if len(calls) == 1 else _template(calls[0].where)
    return [ranges(stages), f"{where}{of_replica(calls[0])}"]


def of_replica(call: Collective) -> str:
    """Whose copy of a stage makes the calls, where that is not both, and is not said."""
    said = call.replica is None or call.where.endswith(" replica")
    return "" if said else f" of replica {call.replica}"


def _template(where: str) -> str:
    """Folded names without their numbers: `layers.[0-1].wo output to stage 1` -> `layers.*.wo output to the next`."""
    open_ = re.sub(r"\.(\d+|\[[\d,-]+\])(?=[.,+ ]|$)", ".*", where)
    word = "previous" if "gradient to stage" in where else "next"
    return re.sub(r" to stage \d+$", f" to the {word} stage", open_)


def _totals(plan: Plan, rank: int) -> list[str]:
    """Of all ranks alike, or of one rank's stages."""
    calls = list(calls_at(plan, rank))
    head = f"rank {rank} " if plan.stages else ""
    return [f"  {head}{line}" for line in _by_axis(calls)]


def _by_axis(calls: Sequence[Collective]) -> list[str]:
    totals: dict[str, tuple[int, int | None]] = {}
    for call in calls:
        count, size = totals.get(call.axis, (0, 0))
        more = None if call.bytes is None or size is None else size + call.bytes * call.count
        totals[call.axis] = (count + call.count, more)
    return [f"over {axis}: {count} calls, {bytes_text(size)}" for axis, (count, size) in totals.items()]


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


def _unknown(plan: Plan) -> list[str]:
    """Sizes of the run that values of the model have and the spec does not give."""
    has = {name for edge in plan.edges for factors in edge.names for name in factors}
    return [name for name in ("batch", "seq") if name in has and getattr(plan.sizes, name) is None]


def _memory(plan: Plan) -> list[str]:
    """What a rank holds at once; of the fullest rank."""
    found = memory(plan)
    kind = "rough estimate: the card does not say what modules save" if found.rough else "estimate"
    rows = [
        ["state", bytes_text(found.state)],
        ["weights gathered", bytes_text(found.gathered)],
        ["gradients not yet summed", bytes_text(found.unsummed)],
        [f"activations ({kind})", bytes_text(found.activations)],
        ["total", bytes_text(found.total if found.activations is not None else None)],
    ]
    return ["memory at once, fullest rank", *table(["", ""], rows, right=frozenset({1}))[1:]]


def _foot(plan: Plan) -> list[str]:
    lines = []
    if unknown := _unknown(plan):
        lines.append(f"? : not known without {' and '.join(f'`{name}`' for name in unknown)} in [sizes]")
    if len(plan.precision.written) < 3:
        lines.append("(assumed): torchtitan's default, since [precision] does not say; a launch takes the recipe's")
    lines.append("S(i): cut along dim i; R: whole; stored S(0): also cut at rest; P: a sum to finish;")
    lines.append("I: whole, and so is its gradient; R on a value: whole, its gradient a sum.")
    lines.append("bytes: the whole tensor on the larger side. Scalars that a trainer reduces for its log,")
    lines.append("its token count and its gradient norm are not listed.")
    lines.append("Activations: what forwards leave for their backwards, at most at one time; not gradients of values.")
    return lines
