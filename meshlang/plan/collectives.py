"""Plan -> every collective of one training step, with axis and bytes, forward and backward.

Seven sources, and no other: values redistributed at module boundaries, parameters gathered and
gradients summed over the axes that carry the batch, the loss over a cut vocabulary, hidden
states and their gradients sent from stage to stage, gradients of two replicas of a stage, what
strategies put into the plan because their modules communicate inside, and the forwards of
recomputed modules, which run again.

Under a pipeline each stage makes its own calls. A boundary and the loss make theirs for every
microbatch, or subsequence of one; with two replicas each takes its part of the microbatches.
Gradients of all microbatches are added up where they are and summed over the batch once a step,
as torch's pipeline stages do with FSDP; `gathers` says how often weights come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, product

from ..fold import Known
from ..language.spec import DTYPE_BYTES
from ..mesh import Mesh
from ..placement import Layout
from .blocks import fullest
from .derive import local_numel
from .gathers import gathers
from .ir import Collective, Edge, Kind, Pass, Plan, Stage, Tensor, Unit, numel
from .slices import alike
from .state import padded, state_bytes


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
    ("R", "S"): (),
}


def moves(edge: Edge, mesh: Mesh) -> tuple[Move, ...]:
    """What an edge redistributes, an entry for each axis of size > 1 that it moves over."""
    if edge.src == edge.dst:
        return ()
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
    known = _places(plan)
    groups: dict[tuple[object, ...], list[Collective]] = {}
    gathered = _gathered(plan)
    units = (call for unit in plan.units for call in _unit(plan, unit, gathered))
    boundaries = (*_within(plan), *_edges(plan))
    between = _between_replicas(plan)
    for call in (*boundaries, *_again(plan, boundaries), *_loss(plan), *_sends(plan), *units, *between):
        place, _, what = call.where.partition(" ")
        key = (call.kind, call.axis, known.template(place), what, call.pass_, call.bytes, call.stage, call.replica)
        groups.setdefault(key, []).append(call)
    for (_, _, _, what, *_), calls in groups.items():
        where = ", ".join(known.fold(call.where.partition(" ")[0] for call in calls))
        count = sum(call.count for call in calls)
        yield replace(calls[0], where=f"{where} {what}".rstrip(), count=count)


def _places(plan: Plan) -> Known:
    """All that may stand first in a collective's `where`."""
    modules = (edge.module for edge in plan.edges)
    tensors = (tensor.fqn for tensor in plan.tensors)
    return Known({*modules, *tensors, *map(_unit_name, plan.units)})


def _within(plan: Plan) -> Iterator[Collective]:
    """What strategies put there: calls inside one module, as large as all of the rank's sequences make them."""
    for call, (replica, batches) in product(plan.collectives, plan.shared):
        size = None if call.bytes is None else call.bytes // plan.passes
        stage = _stage(plan, call.where.partition(" ")[0])
        times = batches * plan.slices // plan.sizes.accumulation
        yield replace(call, bytes=size, count=call.count * times, stage=stage, replica=replica)


def _again(plan: Plan, calls: Iterable[Collective]) -> Iterator[Collective]:
    """What a recomputed module's forward calls, it calls a second time, in the backward.

    Weights are not gathered for it: its backward has gathered them, since FSDP's units lie around it.
    """
    for call in calls if plan.recompute else ():
        module, _, what = call.where.partition(" ")
        if call.pass_ == "forward" and plan.recomputes(module):
            yield replace(call, where=f"{module} {what} again".replace("  ", " "), pass_="backward")


def _edges(plan: Plan) -> Iterator[Collective]:
    made: dict[tuple[object, ...], tuple[Collective, ...]] = {}
    for edge in plan.edges:
        if edge.src == edge.dst:
            continue
        alike = (edge.names, edge.shape, edge.src, edge.dst)
        if alike not in made:
            made[alike] = tuple(_moved(edge, plan))
        where, stage = f"{edge.module} {edge.port}", _stage(plan, edge.module)
        yield from (replace(call, where=where, stage=stage) for call in made[alike])


def _moved(edge: Edge, plan: Plan) -> Iterator[Collective]:
    """The calls of an edge like this one, wherever it is."""
    for (replica, batches), (share, count) in product(plan.shared, alike(plan)):
        size = _larger(edge, plan, share)
        for move in moves(edge, plan.mesh):
            for pass_, kind in move.calls():
                yield Collective(
                    kind=kind,
                    axis=move.axis,
                    where="",
                    pass_=pass_,
                    bytes=None if size is None else size * DTYPE_BYTES[plan.precision.compute],
                    count=batches * count,
                    replica=replica,
                )


def _stage(plan: Plan, module: str) -> int | None:
    """The stage that a module runs in; None without stages."""
    return next((stage.index for stage in plan.stages if stage.holds(module)), None)


def _larger(edge: Edge, plan: Plan, share: Fraction) -> int | None:
    """Elements of the larger side, on one rank, in one pass."""
    src, dst = (_elements(edge, layout, plan, share) for layout in (edge.src, edge.dst))
    return None if src is None or dst is None else max(src, dst)


def _elements(edge: Edge, layout: Layout, plan: Plan, share: Fraction) -> int | None:
    """Elements of a value on one rank in one pass, which has its part of the sequences, and a share of their tokens."""
    whole = local_numel(edge.shape, layout, plan.mesh)
    if whole is None:
        return None
    first = {names[0] for names in edge.names}
    each = Fraction(whole, plan.batches if "batch" in first else 1)
    if plan.block is not None and plan.block.context < plan.block.size:
        each *= fullest(plan.block, edge.names, edge.shape, layout.dims)
    return int(each * share if "seq" in first else each)


def _sends(plan: Plan) -> Iterator[Collective]:
    """What the last module of a stage gives goes to the next stage, and its gradient comes back."""
    for stage, other in pairwise(plan.stages):
        if stage.coordinate == other.coordinate:
            continue
        edge = plan.by_port.get((stage.modules[-1], "output"))
        ways: tuple[tuple[Pass, Stage, Stage], ...] = (("forward", stage, other), ("backward", other, stage))
        for (pass_, here, there), (replica, batches), (share, count) in product(ways, plan.shared, alike(plan)):
            size = None if edge is None else _elements(edge, edge.dst, plan, share)
            yield Collective(
                kind="send",
                axis="+".join(plan.axes_of("pipeline")),
                where=f"{stage.modules[-1]} output{' gradient' * (pass_ == 'backward')} to stage {there.index}",
                pass_=pass_,
                bytes=None if size is None else size * DTYPE_BYTES[plan.precision.compute],
                count=batches * count,
                stage=here.index,
                replica=replica,
            )


def _loss(plan: Plan) -> Iterator[Collective]:
    """A cut vocabulary costs three all-reduces of one number a token: maximum, sum of exponentials, target."""
    if plan.loss is None:
        return
    layout = plan.loss.layout
    rows = Layout(dims=tuple(axes for i, axes in enumerate(layout.dims) if i != plan.loss.vocab))
    shape = tuple(size for i, size in enumerate(plan.loss.shape) if i != plan.loss.vocab)
    tokens = local_numel(shape, rows, plan.mesh)
    width = DTYPE_BYTES["float64" if plan.precision.compute == "float64" else "float32"]
    axes = [axis for axis in layout.dims[plan.loss.vocab] if plan.mesh.size(axis) > 1]
    for axis, (replica, batches), (share, count) in product(axes, plan.shared, alike(plan)):
        yield Collective(
            kind="all_reduce",
            axis=axis,
            where="loss",
            pass_="forward",
            bytes=None if tokens is None else int(tokens * share / plan.batches) * width,
            count=3 * batches * count,
            stage=plan.stages[-1].index if plan.stages else None,
            replica=replica,
        )


#: torch's schedules of one stage a rank, which gather weights no earlier than they need them.
_ONE_STAGE = ("GPipe", "1F1B")

#: (stage, freed after each forward) -> gathers in or before forwards, and in backwards.
Gathered = Mapping[tuple[int | None, bool], tuple[int, int]]


def _gathered(plan: Plan) -> Gathered:
    """How often the weights of each stage are gathered in one step of the schedule."""
    if not plan.stages or plan.pipeline is None or not plan.pipeline.order:
        indexes = [stage.index for stage in plan.stages] or [None]
        return {(index, free): (1, int(free)) for index in indexes for free in (True, False)}
    ahead = plan.pipeline.ops not in _ONE_STAGE
    found = {}
    for row in plan.pipeline.order:
        for free in (True, False):
            found.update({(stage, free): calls for stage, calls in gathers(row, free=free, ahead=ahead).items()})
    return found


def _unit(plan: Plan, unit: Unit, gathered: Gathered) -> Iterator[Collective]:
    """Gather before the forward (and again before the backward when freed), sum after the backward."""
    where = _unit_name(unit)
    stage = plan.stage_of[unit.tensors[0]].index if plan.stages else None
    groups: dict[tuple[str, ...], list[Tensor]] = {}
    for fqn in unit.tensors:
        tensor = plan.by_fqn[fqn]
        groups.setdefault(tensor.stored, []).append(tensor)
        yield from (replace(call, stage=stage) for call in _over_tensor_axes(plan, tensor))
    for stored, tensors in groups.items():
        calls = gathered[stage, unit.after_forward == "free"]
        yield from (replace(call, stage=stage) for call in _over_data_axes(plan, calls, stored, tensors, where))


def _unit_name(unit: Unit) -> str:
    return "+".join(unit.modules) or "model"


def _over_tensor_axes(plan: Plan, tensor: Tensor) -> Iterator[Collective]:
    """A weight that is whole over an axis that cuts its module's activations: its gradient is summed by itself."""
    origin = dict.fromkeys(plan.mesh.names, 0)
    size = numel(tensor.compute_shape(plan.mesh, origin)) * DTYPE_BYTES[plan.precision.compute]
    for axis in tensor.grad:
        if plan.mesh.size(axis) > 1 and plan.role(axis) == "tensor":
            yield _gradient("all_reduce", axis, f"{tensor.fqn} gradient", size, plan)


def _over_data_axes(
    plan: Plan, calls: tuple[int, int], stored: tuple[str, ...], tensors: list[Tensor], where: str
) -> Iterator[Collective]:
    parts = plan.mesh.product(stored)
    elements = sum(padded(plan, tensor) for tensor in tensors)
    wide = DTYPE_BYTES[plan.precision.reduce]
    if parts > 1:
        gathered = elements * DTYPE_BYTES[plan.precision.compute]
        name = _joined(plan, stored)
        passes: tuple[tuple[Pass, int], ...] = (("forward", calls[0]), ("backward", calls[1]))
        for pass_, count in passes:
            if count == 0:
                continue
            yield Collective(
                kind="all_gather",
                axis=name,
                where=f"{where} weights",
                pass_=pass_,
                bytes=gathered,
                count=count * plan.sizes.accumulation,
            )
        yield _gradient("reduce_scatter", name, f"{where} gradients", elements * wide, plan)
    summed = {axis for tensor in tensors for axis in tensor.grad if axis not in stored}
    whole = [axis for axis in plan.axes_of("data", "context") if axis in summed and plan.mesh.size(axis) > 1]
    if whole:
        yield _gradient("all_reduce", "+".join(whole), f"{where} gradients", elements // parts * wide, plan)


def _between_replicas(plan: Plan) -> Iterator[Collective]:
    """Two ranks hold a stage: the first replica's gets the gradients of both, and gives its weights back.

    Each goes as one message for a stage, in the element type in which both are kept.
    """
    axis, known = "+".join(plan.axes_of("pipeline")), Known(module for stage in plan.stages for module in stage.modules)
    for stage in plan.stages:
        if stage.mirror is None or stage.mirror == stage.coordinate:
            continue
        held = [tensor for tensor in plan.tensors if plan.stage_of.get(tensor.fqn) is stage]
        size = sum(_kept(plan, tensor) for tensor in held if tensor.kind == "parameter")
        where = "+".join(known.fold(stage.modules))
        gradients = _gradient("send", axis, f"{where} gradients to the first replica", size, plan)
        yield replace(gradients, stage=stage.index, replica=1)
        weights = f"{where} weights to the second replica"
        back = Collective(kind="send", axis=axis, where=weights, pass_="forward", bytes=size, count=1)
        yield replace(back, stage=stage.index, replica=0)


def _kept(plan: Plan, tensor: Tensor) -> int:
    """Bytes of a parameter on a rank."""
    return padded(plan, tensor) // plan.mesh.product(tensor.stored) * DTYPE_BYTES[plan.precision.state]


def _joined(plan: Plan, axes: tuple[str, ...]) -> str:
    return "+".join(axis for axis in axes if plan.mesh.size(axis) > 1)


def _gradient(kind: Kind, axis: str, where: str, size: int, plan: Plan) -> Collective:
    return Collective(kind=kind, axis=axis, where=where, pass_="backward", bytes=size, count=plan.sizes.accumulation)
