"""What a step of a plan takes: its own collectives, the simulator's timeline, the work of its modules.

    without stages   passes x (forward + backward), calls for weights that nothing hides, the optimizer
    with stages      the makespan of the schedule's Program, each stage as long as its own pass; the same beside it
    optimizer        reads weights, gradients and two moments at rest, writes all but the gradients: 7 numbers each

Gathers and sums hide under `overlap` of the computing of as many passes as there are of each; under a pipeline that is
one microbatch, where gradients of all are summed once. What a plan does not count is not here either: the loader, the
log, a gradient norm, the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..pipeline.costs import Costs, bounds, shares
from ..pipeline.ir import Program
from ..pipeline.simulate import Timeline, simulate
from ..plan.cost import Memory, memory
from ..plan.ir import Collective, Plan, Stage
from ..plan.stages import program_of_plan
from .machine import Machine
from .passes import HIDING, Bulk, Calls, Pass, passed
from .work import Work, works

#: How a plan says that a stage's gradients, and its weights after the step, go from one copy to the other.
COPIES = (" gradients to the first replica", " weights to the second replica")
#: Numbers that the optimizer reads or writes for each that it steps.
STEPPED = 7


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A step of a plan.

    Attributes:
        seconds: all of it; `parts` adds up to it, on the rank that computes longest.
        bubble: share of the pipeline's time in which its ranks wait.
        useful: what the model needs, of the ranks' peak.
        memory: of the fullest rank.
        moved: axis -> bytes of a rank's calls over it, as a plan counts them.
    """

    seconds: float
    parts: Mapping[str, float]
    bubble: float
    useful: float
    memory: Memory
    moved: Mapping[str, int]


def cost(plan: Plan, machine: Machine) -> Cost:
    """What a step of a plan takes under the assumptions."""
    step = _step(plan, machine)
    timeline = _timeline(plan, step, machine) if plan.stages else None
    busy = max(step, key=lambda share: share.seconds)
    waits = 0.0 if timeline is None else timeline.makespan - busy.seconds
    state = plan.state_bytes
    assert state is not None
    optimizer = machine.touch_time(state.parameters * STEPPED)
    parts = {**busy.parts, "bubble": waits, "weights": max(share.exposed for share in step), "optimizer": optimizer}
    seconds = sum(parts.values())
    return Cost(
        seconds=seconds,
        parts=parts,
        bubble=0.0 if timeline is None else timeline.bubble,
        useful=busy_share(step, seconds, machine),
        memory=memory(plan),
        moved=_moved(plan),
    )


def busy_share(step: Iterable[_Share], seconds: float, machine: Machine) -> float:
    """Operations that the model needs, recomputed ones not among them, of what all ranks could do in the time."""
    ranks = list(step)
    total = sum(share.operations for share in ranks)
    return total / (len(ranks) * seconds * machine.tflops * 1e12)


@dataclass(kw_only=True)
class _Sum:
    """Calls of one stage, in seconds a step."""

    calls: Calls = field(default_factory=Calls)
    gather: float = 0.0
    gathers: int = 0
    sum: float = 0.0
    sums: int = 0
    again: int = 0


@dataclass(frozen=True, kw_only=True)
class _Share:
    """What one place along the pipeline does in a step: the passes of its stages."""

    passes: Mapping[int, Pass]
    times: int
    exposed: float
    operations: float

    @property
    def seconds(self) -> float:
        return self.times * sum(each.seconds for each in self.passes.values())

    @property
    def parts(self) -> dict[str, float]:
        all_ = list(self.passes.values())
        return {
            "computing": self.times * sum(p.computing_forward + p.computing_backward for p in all_),
            "again": self.times * sum(p.again for p in all_),
            "boundary": self.times * sum(p.boundary_forward + p.boundary_backward for p in all_),
            "exchange": self.times * sum(p.exchange_forward + p.exchange_backward for p in all_),
        }


def _step(plan: Plan, machine: Machine) -> list[_Share]:
    """Each place of the pipeline, or the only one."""
    work, sums = _work(plan), _sums(plan, machine)
    hides = any(use.name in HIDING for use in plan.strategies)
    passes = {
        stage: passed(work.get(stage, Work()), each.calls * (1 / plan.passes), machine, hides)
        for stage, each in sums.items()
    }
    places: dict[int, list[int | None]] = {}
    for stage in plan.stages:
        places.setdefault(stage.coordinate, []).append(stage.index)
    return [
        _Share(
            passes={stage or 0: passes[stage] for stage in held},
            times=plan.passes,
            exposed=sum(_bulk(plan, stage, sums[stage]).exposed(passes[stage], machine) for stage in held),
            operations=sum(_operations(work.get(stage, Work())) * plan.passes for stage in held),
        )
        for held in (places.values() if places else [[None]])
    ]


def _operations(work: Work) -> float:
    """Of a forward and a backward, as the model's size says: a backward is twice a forward."""
    return 3.0 * (work.products + work.attention)


def _work(plan: Plan) -> dict[int | None, Work]:
    """Of each stage in one pass."""
    found: dict[int | None, Work] = {}
    owner = {module: stage for stage in plan.stages for module in stage.modules}
    for module, each in works(plan).items():
        stage = _owner(module, owner)
        found[stage] = found.get(stage, Work()) + each
    return found


def _owner(module: str, owner: Mapping[str, Stage]) -> int | None:
    while owner and module:
        if module in owner:
            return owner[module].index
        module = module.rpartition(".")[0]
    return None


# Calls


def sort_of(call: Collective) -> str:
    """What a collective is for."""
    if call.where.endswith((" weights", " gradients")):
        return "weights" if call.where.endswith(" weights") else "gradients"
    return "gradient" if call.where.endswith(" gradient") else ""


def call_time(plan: Plan, call: Collective, machine: Machine) -> float:
    """Seconds of all calls of an entry, one after the other."""
    group = machine.group(plan.mesh, call.axis.split("+"))
    each = machine.delay(call.kind, group) + (call.bytes or 0) * machine.per_byte(call.kind, group)
    return call.count * each


def _sums(plan: Plan, machine: Machine) -> dict[int | None, _Sum]:
    found: dict[int | None, _Sum] = {stage.index: _Sum() for stage in plan.stages} or {None: _Sum()}
    pipeline = set(plan.axes_of("pipeline"))
    for call in plan.collectives:
        if call.axis not in pipeline:
            for stage in (call.stage,) if call.stage is not None else found:
                _count(found[stage], call, call_time(plan, call, machine), plan)
    return found


def _count(into: _Sum, call: Collective, seconds: float, plan: Plan) -> None:
    sort, forward = sort_of(call), call.pass_ == "forward"
    if sort == "weights" and forward:
        into.gather, into.gathers = into.gather + seconds, into.gathers + call.count
    elif sort in ("weights", "gradients"):
        into.sum, into.sums = into.sum + seconds, into.sums + call.count * (sort == "gradients")
    else:
        context = sort == "" and call.axis in plan.axes_of("context")
        name = ("exchange_" if context else "") + ("forward" if forward else "backward")
        copies = plan.replicas if call.replica is None else 1  # a stage's calls are told once for copies that are alike
        into.calls += Calls(**{name: seconds * copies})


def _bulk(plan: Plan, stage: int | None, each: _Sum) -> Bulk:
    units = sum(stage is None or plan.stage_of[unit.tensors[0]].index == stage for unit in plan.units)
    return Bulk(
        gathered=each.gather,
        gather_passes=min(plan.passes, each.gathers / max(units, 1)),
        summed=each.sum,
        sum_passes=min(plan.passes, each.sums / max(units, 1)),
    )


# Stages


def _timeline(plan: Plan, step: Iterable[_Share], machine: Machine) -> Timeline:
    program = program_of_plan(plan)
    assert program is not None
    passes = {stage: each for share in step for stage, each in share.passes.items()}
    return simulate(program, _links(plan, machine), times=_times(program, passes))


def _times(program: Program, passes: Mapping[int, Pass]) -> dict[tuple[str, int], tuple[float, ...]]:
    """Of each operation on each stage; a later subsequence sees more keys."""
    count = program.subsequences
    pairs = [count * share for share in shares(bounds(count))[1]]
    found: dict[tuple[str, int], tuple[float, ...]] = {}
    for stage, each in passes.items():
        kinds = {
            "F": (each.forward - each.forward_attention, each.forward_attention),
            "B": (each.backward - each.backward_attention, each.backward_attention),
            "I": (each.backward - each.backward_attention - each.weights, each.backward_attention),
            "W": (each.weights, 0.0),
        }
        for kind, (even, growing) in kinds.items():
            found[kind, stage] = tuple(even + growing * share for share in pairs)
    return found


def _links(plan: Plan, machine: Machine) -> Costs:
    """What the pipeline's messages cost, from its axis and the nodes; those of two copies are no messages of stages."""
    (axis,) = plan.axes_of("pipeline")
    inner = plan.mesh.product(plan.mesh.names[plan.mesh.names.index(axis) + 1 :])
    sent = [(call.where, call.bytes or 0) for call in plan.collectives if call.axis == axis]
    size = max((each for where, each in sent if not where.endswith(COPIES)), default=0) * plan.slices
    copied = sum(each for where, each in sent if where.endswith(COPIES)) / plan.mesh.size(axis)
    return Costs(
        latency=machine.latency * 1e-6,
        transfer=size / (machine.link * 1e9),
        latency_between=machine.latency_between * 1e-6,
        transfer_between=size / (machine.link_between * 1e9),
        ranks_per_node=max(1, machine.ranks_per_node // inner),
        sync=copied / (machine.link * 1e9),
        sync_between=copied / (machine.link_between * 1e9),
    )


def _moved(plan: Plan) -> dict[str, int]:
    """Of the place along the pipeline that moves the most over an axis."""
    held: dict[int, set[int]] = {}
    for stage in plan.stages:
        held.setdefault(stage.coordinate, set()).add(stage.index)
    found: dict[str, int] = {}
    for stages in held.values() or [set[int]()]:
        here: dict[str, int] = {}
        for call in plan.collectives:
            if call.stage is None or call.stage in stages:
                here[call.axis] = here.get(call.axis, 0) + (call.bytes or 0) * call.count
        found = {axis: max(found.get(axis, 0), here.get(axis, 0)) for axis in {**found, **here}}
    return found
