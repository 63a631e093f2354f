"""A cut's own plan, of few layers and one sequence, as pieces that are counted up to any candidate with this cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from ..compiler import Request, load, plan_of
from ..diagnostics import Bag, SpecError
from ..plan.cost import StageValues
from ..plan.ir import Collective, Plan, Unit, numel
from ..plan.resolve import resolve
from ..source import Source
from .candidate import Candidate, Cut
from .cost import sort_of
from .machine import Machine
from .passes import Calls
from .shape import Shape
from .space import Run
from .work import Work, works
from .write import spec_text


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One of the outermost modules, for one sequence in one pass.

    Attributes:
        calls: seconds for the bytes of its calls; `delays` for their steps, whatever their bytes.
        elements: of its weights while computing, on one rank.
        saved: bytes for its backward; `enters` instead where it runs again, and then `burst` at its backward.
        gives: bytes of what it gives; `joins` beside the rest while that is made.
    """

    work: Work = field(default_factory=Work)
    calls: Calls = field(default_factory=Calls)
    delays: Calls = field(default_factory=Calls)
    elements: int = 0
    saved: int = 0
    enters: int = 0
    burst: int = 0
    gives: int = 0
    joins: int = 0


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Pieces of a cut.

    Attributes:
        pieces: outermost module -> its piece; of the layers the first stands for all.
        units: elements of each unit whose weights travel together, and whether it is kept, first to last.
        logits: bytes of the loss for one sequence; `moment` of what is beside it at the end of a forward.
    """

    cut: Cut
    pieces: dict[str, Piece]
    units: tuple[tuple[int, bool], ...]
    logits: int
    moment: int


def probed(cut: Cut, shape: Shape, run: Run, request: Request, machine: Machine, model: str) -> Probe:
    """The pieces of a cut.

    Raises:
        SpecError: the model's card does not allow the cut.
    """
    one = Candidate(cut=cut)
    text = spec_text(one, shape, model=model, batch=1, seq=run.seq, ranks_per_node=run.ranks_per_node)
    plan = planned(text, shape.few, request)
    found = works(plan)
    values = StageValues(plan, None, Fraction(1))
    calls = _calls(plan, values.tops, machine)
    pieces = {
        top: _piece(plan, values, top, [each for module, each in found.items() if _inside(module, top)], timed)
        for top in values.tops
        for timed in (calls.get(_head(top), _Timed()),)
    }
    return Probe(
        cut=cut,
        pieces=pieces,
        units=tuple((_elements(plan, unit), unit.after_forward == "keep") for unit in plan.units),
        logits=values.log_probabilities,
        moment=values.moment,
    )


def planned(text: str, shape: Shape, request: Request, *, launch: bool = True) -> Plan:
    """The plan of a spec's text for a model that is read already.

    Raises:
        SpecError: the text is refused.
    """
    spec = load(replace(request, source=Source(name="suggested", text=text)))
    bag = Bag()
    resolved = resolve(spec, shape.model, None, bag)
    bag.check()
    assert resolved is not None
    return plan_of(spec, resolved, launch=launch)


def refusal(error: SpecError) -> str:
    """Why a cut is not there, in a line."""
    return error.diagnostics[0].message


def _inside(module: str, top: str) -> bool:
    return module == top or module.startswith(f"{top}.")


def _piece(plan: Plan, values: StageValues, top: str, work: Sequence[Work], calls: _Timed) -> Piece:
    share = 1 / sum(_head(other) == _head(top) for other in values.tops)
    return Piece(
        work=sum(work, Work()),
        calls=calls.bytes * share,
        delays=calls.steps * share,
        elements=sum(
            numel(tensor.compute_shape(plan.mesh, dict.fromkeys(plan.mesh.names, 0)))
            for tensor in plan.tensors
            if tensor.kind == "parameter" and _inside(tensor.fqn, top)
        ),
        saved=values.kept.get(top, 0),
        enters=values.inputs(top),
        burst=values.kept.get(top, 0) - values.inputs(top) + values.joins(top),
        gives=values.gives(top),
        joins=values.joins(top),
    )


@dataclass(frozen=True, kw_only=True)
class _Timed:
    """Collectives as seconds for their bytes and for their steps."""

    bytes: Calls = field(default_factory=Calls)
    steps: Calls = field(default_factory=Calls)


def _head(place: str) -> str:
    """Up to the first number: what modules of alike layers share."""
    parts = place.split(".")
    number = next((i for i, part in enumerate(parts) if part.isdecimal() or part[:1] in "*["), None)
    return place if number is None else ".".join(parts[:number])


def _calls(plan: Plan, tops: Sequence[str], machine: Machine) -> dict[str, _Timed]:
    """By the head of the outermost module that they are in; the loss is at the last."""
    found: dict[str, _Timed] = {}
    for call in plan.collectives:
        if sort_of(call) in ("weights", "gradients"):
            continue
        place = call.where.partition(" ")[0].rstrip(",")
        top = tops[-1] if place == "loss" else next((each for each in tops if _inside(place, each)), place)
        before, more = found.get(_head(top), _Timed()), _timed(plan, call, machine)
        found[_head(top)] = _Timed(bytes=before.bytes + more.bytes, steps=before.steps + more.steps)
    return found


def _timed(plan: Plan, call: Collective, machine: Machine) -> _Timed:
    group = machine.group(plan.mesh, call.axis.split("+"))
    context = sort_of(call) == "" and call.axis in plan.axes_of("context")
    name = ("exchange_" if context else "") + call.pass_
    total = call.count * (call.bytes or 0) * machine.per_byte(call.kind, group)
    return _Timed(
        bytes=Calls(**{name: total}),
        steps=Calls(**{name: call.count * machine.delay(call.kind, group)}),
    )


def _elements(plan: Plan, unit: Unit) -> int:
    origin = dict.fromkeys(plan.mesh.names, 0)
    return sum(numel(plan.by_fqn[fqn].compute_shape(plan.mesh, origin)) for fqn in unit.tensors)
