"""What torchtitan's `spmd_types` backend can run, as laws on a plan: found before a process starts.

The plan language is wider than one backend. What the backend has no word for, or gets wrong, is
refused here with its reason; nothing is lowered that was not shown to give right gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise

from ..diagnostics import Bag, Diagnostic, Edit, Help, Label
from ..language.spec import AxisEntry
from ..pipeline.actions import read_cell
from ..pipeline.laws import order_problems
from .cut_findings import made_of_part
from .gathers import MOST_ACTIVE
from .ir import Plan, Tensor
from .resolved import Resolved
from .verify import made_of_parts

#: `Schedule.ops` of a schedule whose order torch runs as it is said.
ORDER = "csv"


def launchable(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """Every law, into the bag."""
    for law in (
        _one_axis_a_role,
        _order,
        _all_stored,
        _vocabulary,
        _pipelines,
        _context,
        _positions,
        _uneven,
        _added_once,
        _made_of_whole,
        _recomputed,
    ):
        law(plan, resolved, bag)


def _refuse(entry: AxisEntry, message: str, bag: Bag, *notes: str, help: tuple[Help, ...] = ()) -> None:
    label = Label(span=entry.key)
    bag.add(Diagnostic(code="not-launchable", message=message, label=label, notes=notes, help=help))


def _entry(axis: str, resolved: Resolved) -> AxisEntry:
    return next(entry for entry in resolved.spec.mesh if entry.name == axis)


def parts(plan: Plan) -> dict[str, tuple[str, ...]]:
    """torchtitan's axes, outermost first -> the plan's axes of size > 1 that they carry."""
    stored = {axis for tensor in plan.tensors for axis in tensor.stored}
    data = plan.axes_of("data")
    found = {
        "pp": plan.axes_of("pipeline"),
        "dp_replicate": tuple(axis for axis in data if axis not in stored),
        "dp_shard": tuple(axis for axis in data if axis in stored),
        "cp": plan.axes_of("context"),
        "tp": plan.axes_of("tensor"),
    }
    return {name: tuple(axis for axis in axes if plan.mesh.size(axis) > 1) for name, axes in found.items()}


def _one_axis_a_role(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """torchtitan has one axis each for stages, copies, stored parts, the sequence and weights."""
    for name, axes in parts(plan).items():
        for axis in axes[1:]:
            _refuse(_entry(axis, resolved), f"`{axes[0]}` and `{axis}` would both be torchtitan's `{name}`", bag)


def _order(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """Ranks are numbered as torchtitan numbers them: pp, dp_replicate, dp_shard, cp, tp, outermost first."""
    wanted = [axis for axes in parts(plan).values() for axis in axes]
    here = [axis for axis in plan.mesh.names if axis in wanted]
    if here != wanted:
        axis = next(a for a, b in zip(here, wanted, strict=True) if a != b)
        message = f"torchtitan's order of these axes is {', '.join(wanted)}, the spec's {', '.join(here)}"
        _refuse(_entry(axis, resolved), message, bag, help=(_reorder(_whole_order(plan, wanted), resolved),))


def _reorder(names: list[str], resolved: Resolved) -> Help:
    """Offer an order of the axes, in place of the one that is written."""
    words = ", ".join(f'"{name}"' for name in names)
    written = resolved.spec.topology.order
    if written is not None:
        span = written[0].span.source.span(written[0].span.start, written[-1].span.end)
        edit = Edit(span=span, text=words)
    else:
        end = len(resolved.spec.source.text)
        edit = Edit(span=resolved.spec.source.span(end, end), text=f"\n[topology]\norder = [{words}]\n")
    return Help(text=f"`[topology] order = [{words}]`", edits=(edit,))


def _whole_order(plan: Plan, wanted: list[str]) -> list[str]:
    return [*wanted, *(axis for axis in plan.mesh.names if axis not in wanted)]


def _all_stored(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """torchtitan stores all parameters of a unit alike."""
    store = resolved.spec.store
    if all(len({plan.by_fqn[fqn].stored for fqn in unit.tensors}) < 2 for unit in plan.units):
        return
    if store is not None and store.exceptions:
        span = store.exception_spans[0]
        message = "`except` leaves some parameters whole, and torchtitan's FSDP stores all of a unit alike"
    else:
        span = store.span if store is not None else resolved.spec.mesh_span
        names = ", ".join(f"`{use.name}`" for use in plan.strategies)
        message = f"torchtitan's FSDP stores all parameters of a unit alike, and {names} stores some apart"
    bag.add(Diagnostic(code="not-launchable", message=message, label=Label(span=span)))


def _vocabulary(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """torchtitan's loss under a tensor axis is the one over a cut vocabulary."""
    if plan.loss is None:
        return
    for axis in parts(plan)["tp"]:
        if axis not in plan.loss.layout.dims[plan.loss.vocab]:
            message = f"torchtitan's loss wants logits cut over `{axis}` in the vocabulary, and here they are not"
            rule = resolved.rules.decide("", resolved.model.loss.vocab).rule if resolved.model.loss else None
            fix = (
                (
                    Help(
                        text="{} cuts them",
                        edits=(Edit(span=rule.span, text=f'"{axis}"'),),
                        values=(f'`{rule.name} = "{axis}"`',),
                    ),
                )
                if rule
                else ()
            )
            bag.add(
                Diagnostic(
                    code="not-launchable",
                    message=message,
                    label=Label(span=rule.span if rule else _entry(axis, resolved).key),
                    labels=(Label(span=_entry(axis, resolved).key, text="cuts weights"),) if rule else (),
                    help=fix,
                )
            )


def schedule_name(plan: Plan) -> str | None:
    """The name that torchtitan is given; for an order from a file, one with the same places of stages."""
    if plan.pipeline is None or plan.pipeline.ops != ORDER:
        return None if plan.pipeline is None else plan.pipeline.ops
    turns = any(a.coordinate == b.coordinate for a, b in pairwise(plan.stages))
    return "ZBVZeroBubble" if turns else "Interleaved1F1B"


def _pipelines(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """A schedule has a part that runs, its order comes to an end, and how often weights come is known."""
    pipeline = resolved.spec.pipeline
    if pipeline is None or plan.pipeline is None or not plan.stages:
        return
    name = pipeline.schedule.name
    if plan.pipeline.ops is None:
        message = f"`{name.value}` has no part that runs on torch"
        bag.add(Diagnostic(code="not-launchable", message=message, label=Label(span=name.span)))
    elif "." in plan.pipeline.ops and not _installed(plan.pipeline.ops):
        message = f"`{name.value}` runs on `{plan.pipeline.ops}`, and there is no such module"
        bag.add(Diagnostic(code="not-launchable", message=message, label=Label(span=name.span)))
    for message in _never_ends(plan):
        bag.add(Diagnostic(code="not-launchable", message=f"`{name.value}`: {message}", label=Label(span=name.span)))
    _gathered_again(plan, resolved, bag)


def _gathered_again(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """How often weights are gathered that do not stay is counted along an order in torch's notation alone."""
    pipeline, use, store = resolved.spec.pipeline, plan.pipeline, resolved.spec.store
    if pipeline is None or use is None or use.order or not any(tensor.stored for tensor in plan.tensors):
        return
    word = store.after_forward if store is not None else None
    name, labels, fix = pipeline.schedule.name, (), ()
    if word is not None and any(unit.after_forward == "free" for unit in plan.units):
        weights = 'weights that [store] after_forward = "free" frees'
        labels = (Label(span=word.span, text="frees them"),)
        fix = (Help(text='`after_forward = "keep"` gathers them once', edits=(Edit(span=word.span, text='"keep"'),)),)
    elif (use.chunks or 1) > MOST_ACTIVE:
        weights = f"weights where a rank holds {use.chunks} stages, more than {MOST_ACTIVE}"
    else:
        return
    why = "is a Program, which has none" if use.program is not None else "does not say its order"
    note = f"it is counted along an order in torch's notation, and `{name.value}` {why}"
    message = f"a plan does not count how often `{name.value}` gathers {weights}"
    label = Label(span=name.span)
    bag.add(Diagnostic(code="not-launchable", message=message, label=label, labels=labels, notes=(note,), help=fix))


def _never_ends(plan: Plan) -> Iterator[str]:
    """What stands against an order that torch is to run as it is said: a run would stand still."""
    assert plan.pipeline is not None
    if plan.pipeline.ops != ORDER:
        return
    try:
        cells = [[read_cell(cell) for cell in row] for row in plan.pipeline.order]
    except ValueError as error:
        yield f"{error}"
        return
    ranks = plan.mesh.product(plan.axes_of("pipeline"))
    for problem in order_problems(cells, ranks=ranks, microbatches=plan.pipeline.microbatches or 1):
        where = "" if problem.row is None else f"rank {problem.row}: "
        yield f"{where}{problem.message}"


def _installed(path: str) -> bool:
    """Whether a module is there; its package is imported, and it is not."""
    try:
        return find_spec(path) is not None
    except ImportError:
        return False


def _context(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """torchtitan's Trainer asks for two equal parts of a sequence on each rank, whether it balances or not."""
    seq, axes = plan.sizes.seq, parts(plan)
    for axis in axes["cp"]:
        inner = plan.mesh.product(axes["tp"]) if cuts_sequence(plan) else 1
        wanted = 2 * plan.mesh.size(axis) * inner
        if seq is None or seq % wanted == 0:
            continue
        ranks = f"2 on each of `{axis}` = {plan.mesh.size(axis)} ranks"
        ranks += "".join(f", each in {plan.mesh.size(a)} over `{a}`" for a in axes["tp"] if inner > 1)
        message = f"torchtitan wants {wanted} equal parts of `seq` = {seq}: {ranks}"
        _refuse(_entry(axis, resolved), message, bag, help=_lengths(seq, wanted, resolved))


def cuts_sequence(plan: Plan) -> bool:
    """Whether a tensor axis cuts the sequence of some value between modules."""
    tensor = set(parts(plan)["tp"])
    return any(
        tensor & set(axes)
        for edge in plan.edges
        for names, axes in zip(edge.names, edge.dst.dims, strict=True)
        if names[0] == "seq"
    )


def _lengths(seq: int, wanted: int, resolved: Resolved) -> tuple[Help, ...]:
    """The lengths next to `seq` that divide."""
    written = resolved.spec.sizes.seq if resolved.spec.sizes is not None else None
    if written is None:
        return ()
    fits = tuple(str(size) for size in (seq // wanted * wanted, -(-seq // wanted) * wanted) if size)
    edits = tuple(Edit(span=written.span, text=size) for size in fits)
    return (Help(text="`seq` may be {} here", edits=edits, values=fits),)


def _positions(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """torchtitan has rotations, and GPT-2 weights, for so many positions and no more."""
    written = resolved.spec.sizes.seq if resolved.spec.sizes is not None else None
    most = resolved.model.sizes.get("positions")
    if written is None or most is None or written.value <= most:
        return
    message = f"`seq` = {written.value} is longer than the {most} positions that `{plan.model}` has"
    fix = Help(text="`seq` may be {} here", edits=(Edit(span=written.span, text=str(most)),), values=(str(most),))
    bag.add(Diagnostic(code="not-launchable", message=message, label=Label(span=written.span), help=(fix,)))


def _uneven(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """torchtitan's plain shards are equal."""
    for word in resolved.spec.uneven:
        bag.add(
            Diagnostic(
                code="not-launchable",
                message=f"torchtitan cuts in equal parts only, and `{word.value}` is allowed to be uneven",
                label=Label(span=word.key),
            )
        )


def _added_once(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """A bias beside a product that is a sum over an axis would be added once a rank."""
    for edge in plan.edges:
        for axis in (a for a in edge.src.partial if edge.port == "output" and plan.mesh.size(a) > 1):
            for entry in resolved.model.held.get(edge.module, ()):
                if entry.kind == "parameter" and not _cut_by(axis, plan.by_fqn[entry.fqn]):
                    message = f"`{entry.fqn}` is added to a sum over `{axis}`, so once for each of its ranks"
                    _refuse(_entry(axis, resolved), message, bag, f"first in {edge.module}")


def _made_of_whole(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """A model on plain parts knows the length of its part alone, over every axis."""
    for part in made_of_parts(plan, resolved):
        bag.add(made_of_part(part, resolved, "not-launchable"))


def _cut_by(axis: str, tensor: Tensor) -> bool:
    return any(axis in dim.axes for dim in tensor.dims)


def _recomputed(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """A recomputed forward runs once more, and gathers no weights of its own."""
    table = resolved.spec.recompute
    if table is None:
        return
    order = plan.pipeline.order if plan.pipeline is not None and plan.stages else ()
    if plan.pipeline is not None and any("W" in action for row in order for action in row):
        # torch 2.14: each of autograd's calls for a group of weights finds the values of the last one gone
        message = f"`{plan.pipeline.schedule}` would run a recomputed forward once for each weight of its module"
        note = "it computes the gradients of weights apart from those of inputs, each in a pass of autograd of its own"
        bag.add(Diagnostic(code="not-launchable", message=message, label=Label(span=table.key), notes=(note,)))
    inside = ((each, module) for unit in plan.units for module in unit.modules for each in plan.recompute)
    for each, module in inside:
        if module.startswith(f"{each}."):
            message = f"`{each}` is recomputed, and `{module}` inside it is gathered and summed as a unit of its own"
            bag.add(Diagnostic(code="not-launchable", message=message, label=Label(span=table.pattern_spans[0])))
            return
