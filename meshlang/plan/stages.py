"""Which rank holds which modules: a plan whose model is cut in stages over the pipeline axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Literal

from ..diagnostics import Bag, Diagnostic, Edit, Help, Label
from ..language.spec import Written
from ..pipeline.actions import flat
from ..pipeline.ir import Program
from ..pipeline.notation import program_of
from ..pipeline.orders import Order
from ..source import Span
from ..strategy import Context, Schedule
from .balance import balanced
from .derive import keys_of
from .ir import Edge, Option, Plan, Stage, Tensor, Unit
from .split import BALANCE, Parts, read_split

#: Forwards of one step that are put in order.
MOST_ACTIONS = 1_000_000
#: Numbers that one help offers.
MOST_OFFERED = 4

if TYPE_CHECKING:
    from .resolved import Resolved


def staged(plan: Plan, resolved: Resolved, bag: Bag) -> Plan:
    """The plan with its stages, or as it was with findings in the bag.

    A pipeline over an axis of one rank is checked, and then is none.
    """
    pipeline = resolved.spec.pipeline
    if pipeline is None or plan.pipeline is None:
        return plan
    schedule: Schedule = pipeline.schedule.plugin
    context = pipeline_context(plan, resolved)
    ranks = plan.mesh.product(plan.axes_of("pipeline"))
    chunks = schedule.stages_per_rank(context)
    parts = _parts(resolved, ranks * chunks, bag)
    if not parts or not _countable(len(parts), resolved, bag):
        return plan
    order = schedule.order(context)
    program = None if order or ranks == 1 else schedule.program(context)
    use = replace(plan.pipeline, chunks=chunks, ops=schedule.ops, order=order, program=program)
    use = replace(use, lengths=schedule.tokens(context))
    plan = replace(plan, pipeline=replace(use, options=_options(schedule)))
    if ranks == 1:
        return plan
    plan = replace(plan, stages=tuple(_placed(parts, order, program, ranks, schedule)))
    plan = replace(plan, units=tuple(_units(plan)))
    for finding in _tied(plan, resolved):
        bag.add(finding)
    return plan


def pipeline_context(plan: Plan, resolved: Resolved) -> Context:
    """What the schedule of `[pipeline]` is asked in."""
    pipeline = resolved.spec.pipeline
    assert pipeline is not None
    node = resolved.spec.topology.ranks_per_node
    return Context(plan=plan, table=pipeline.schedule, ranks_per_node=None if node is None else node.value)


#: Keys that PipelineUse has by name.
_SHARED = ("microbatches", "subsequences", "chunks", "split", "lengths")


def _options(schedule: Schedule) -> tuple[tuple[str, Option], ...]:
    """A schedule's own keys, where it says its own Program."""
    if type(schedule).program is Schedule.program:
        return ()
    return tuple((key, value) for key, value in keys_of(schedule) if key not in _SHARED)


def _placed(parts: Parts, order: Order, program: Program | None, ranks: int, schedule: Schedule) -> Iterator[Stage]:
    """Each stage where its actions are; two replicas lie on two coordinates."""
    named = _places(order)
    for index, modules in enumerate(parts):
        if program is not None:
            at, mirror = program.host[0, index], program.host.get((1, index))
        else:
            at, mirror = named[index] if named else coordinate(index, ranks, schedule.placement), None
        yield Stage(index=index, modules=modules, coordinate=at, mirror=mirror)


def _countable(stages: int, resolved: Resolved, bag: Bag) -> bool:
    """False, and a finding, for more actions than can be put in order."""
    pipeline = resolved.spec.pipeline
    assert pipeline is not None
    slices = [word.value for word in (pipeline.microbatches, pipeline.subsequences) if word is not None]
    count = stages * prod(slices)
    if count <= MOST_ACTIONS:
        return True
    written = pipeline.microbatches or pipeline.subsequences
    assert written is not None
    message = f"{stages} stages make {count} forwards a step, and at most {MOST_ACTIONS} are put in order"
    bag.add(Diagnostic(code="bad-value", message=message, label=Label(span=written.span)))
    return False


def coordinate(index: int, ranks: int, placement: Literal["loop", "v"]) -> int:
    """Where on the pipeline axis a stage lies."""
    there, place = divmod(index, ranks)
    return ranks - 1 - place if placement == "v" and there % 2 else place


def _places(order: Order) -> list[int]:
    """For each stage the rank whose actions name it."""
    found = {action.stage: rank for rank, row in enumerate(order) for action in flat(row)}
    return [found[stage] for stage in sorted(found)]


def _parts(resolved: Resolved, count: int, bag: Bag) -> Parts:
    """The modules of each of `count` stages."""
    pipeline = resolved.spec.pipeline
    assert pipeline is not None
    name, written = pipeline.schedule.name, pipeline.split
    if not resolved.model.split:
        message = f"the card of `{resolved.model.name}` has no [split], so nothing says what a stage may hold"
        bag.add(Diagnostic(code="bad-split", message=message, label=Label(span=name.span)))
        return ()
    if written is not None and written.value != BALANCE:
        return read_split(written, resolved.model, bag)
    parts = balanced(resolved.model, count)
    if not parts:
        bag.add(_too_many(count, resolved, name))
    return parts


def _too_many(count: int, resolved: Resolved, name: Written[str]) -> Diagnostic:
    """More stages than there are modules; offers fewer stages a rank, or fewer ranks."""
    pipeline, modules = resolved.spec.pipeline, sum(len(word.modules) for word in resolved.model.split)
    assert pipeline is not None
    ranks = resolved.mesh.size("pp")
    chunks, entry = count // ranks, next(entry for entry in resolved.spec.mesh if entry.name == "pp")
    fewer = [] if pipeline.chunks is None else [("chunks", pipeline.chunks.span, modules // ranks)]
    fewer += [("pp", entry.span, modules // chunks)] if entry.size is not None else []
    return Diagnostic(
        code="too-many-stages",
        message=f"`{name.value}` makes {count} stages, and `{resolved.model.name}` has {modules} modules to share out",
        label=Label(span=name.span),
        notes=(f"`pp` = {ranks}, {chunks} on each rank",),
        help=tuple(_up_to(key, span, most) for key, span, most in fewer),
    )


def _up_to(key: str, span: Span, most: int) -> Help:
    """The largest few numbers that leave no stage empty."""
    values = tuple(str(n) for n in range(1, most + 1))[-MOST_OFFERED:]
    return Help(text=f"{key} may be {{}} here", edits=tuple(Edit(span=span, text=v) for v in values), values=values)


def _units(plan: Plan) -> Iterator[Unit]:
    """Units of one stage each: what a split parts is gathered, and reduced, apart."""
    for unit in plan.units:
        for stage in plan.stages:
            tensors = tuple(fqn for fqn in unit.tensors if plan.stage_of[fqn] is stage)
            modules = tuple(module for module in unit.modules if not module or stage.holds(module))
            if tensors:
                yield replace(unit, modules=modules, tensors=tensors)


def _tied(plan: Plan, resolved: Resolved) -> Iterator[Diagnostic]:
    """One tensor cannot lie on two ranks under two names."""
    pipeline = resolved.spec.pipeline
    assert pipeline is not None
    for tensor in plan.tensors:
        places = {
            name: stage.index for name in (tensor.fqn, *tensor.tied) for stage in plan.stages if stage.holds(name)
        }
        if len(set(places.values())) > 1:
            told = " and ".join(f"`{name}` in stage {index}" for name, index in places.items())
            yield Diagnostic(
                code="tied-stages",
                message=f"{told} are one tensor, and stages share none",
                label=Label(span=pipeline.schedule.name.span),
                notes=("torchtitan refuses tied weights under a pipeline: their gradients would have to be summed",),
            )


def part(plan: Plan, stage: Stage) -> Plan:
    """The plan of one stage alone: its tensors, the boundaries of its modules, its units.

    What enters the whole model enters the first stage, what leaves it leaves the last.
    """
    return replace(
        plan,
        tensors=tuple(tensor for tensor in plan.tensors if stage.holds(tensor.fqn)),
        edges=tuple(edge for edge in plan.edges if _crosses(plan, stage, edge)),
        units=tuple(unit for unit in plan.units if stage.holds(unit.tensors[0])),
        loss=plan.loss if stage.index == len(plan.stages) - 1 else None,
    )


def _crosses(plan: Plan, stage: Stage, edge: Edge) -> bool:
    if edge.module:
        return stage.holds(edge.module)
    return stage.index == (len(plan.stages) - 1 if edge.port == "output" else 0)


def held(plan: Plan, coordinate: dict[str, int]) -> tuple[Tensor, ...]:
    """The tensors that the rank at a coordinate holds a part of."""
    return tuple(tensor for tensor in plan.tensors if plan.holds(tensor, coordinate))


def program_of_plan(plan: Plan) -> Program | None:
    """What the ranks of the pipeline do, however the schedule says it; None where it does not say."""
    use = plan.pipeline
    if use is None or (use.program is None and not use.order):
        return None
    return use.program or program_of(use.order)


def stages_at(plan: Plan, rank: int) -> tuple[Stage, ...]:
    """The stages of a rank, first to last."""
    here = plan.mesh.coordinate(rank)
    axes = plan.axes_of("pipeline")
    return tuple(stage for stage in plan.stages if all(here[axis] in stage.coordinates for axis in axes))


#: torch's schedules that compute the gradients of inputs first, and those of weights later.
_LATE_WEIGHTS = ("InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")


def splits_backward(plan: Plan) -> bool:
    """Whether the gradients of weights are computed apart from, and after, those of inputs."""
    if plan.pipeline is None:
        return False
    program = plan.pipeline.program
    if program is not None:
        return any(op.kind == "W" for _, _, op in program.ops())
    return plan.pipeline.ops in _LATE_WEIGHTS or any("W" in action for row in plan.pipeline.order for action in row)


def turns_back(plan: Plan) -> bool:
    """Whether two neighbouring stages lie on one rank, as at the tip of a V."""
    return any(a.coordinate == b.coordinate for a, b in pairwise(plan.stages))
