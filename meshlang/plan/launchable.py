"""What torchtitan's `spmd_types` backend can run, as laws on a plan: found before a process starts.

The plan language is wider than one backend. What the backend has no word for, or gets wrong, is
refused here with its reason; nothing is lowered that was not shown to give right gradients.
"""

from __future__ import annotations

from ..diagnostics import Bag, Diagnostic, Label
from ..language.spec import AxisEntry
from .ir import Plan
from .resolve import Resolved


def launchable(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """Every law, into the bag."""
    for law in (_one_axis_a_role, _order, _all_stored, _vocabulary, _pipelines, _context, _uneven):
        law(plan, resolved, bag)


def _refuse(entry: AxisEntry, message: str, bag: Bag, *notes: str) -> None:
    bag.add(
        Diagnostic(
            code="not-launchable", message=message, label=Label(span=entry.key), notes=("on torchtitan's mesh", *notes)
        )
    )


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
        order = ", ".join(f'"{name}"' for name in _whole_order(plan, wanted))
        _refuse(_entry(axis, resolved), message, bag, f"[topology] order = [{order}]")


def _whole_order(plan: Plan, wanted: list[str]) -> list[str]:
    return [*wanted, *(axis for axis in plan.mesh.names if axis not in wanted)]


def _all_stored(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """torchtitan stores all parameters of a unit alike."""
    store = resolved.spec.store
    if store is not None and store.exceptions:
        bag.add(
            Diagnostic(
                code="not-launchable",
                message="`except` leaves some parameters whole, and torchtitan's FSDP stores all of a unit alike",
                label=Label(span=store.span),
            )
        )


def _vocabulary(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """torchtitan's loss under a tensor axis is the one over a cut vocabulary."""
    if plan.loss is None:
        return
    for axis in parts(plan)["tp"]:
        if axis not in plan.loss.layout.dims[plan.loss.vocab]:
            message = f"torchtitan's loss wants logits cut over `{axis}` in the vocabulary, and here they are not"
            _refuse(_entry(axis, resolved), message, bag, f'`vocab = "{axis}"` in [place] cuts them')


def _pipelines(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """Pipelines are planned, not yet lowered."""
    for axis in parts(plan)["pp"]:
        _refuse(_entry(axis, resolved), f"pipelines over `{axis}` are planned, and not yet lowered", bag)


def _context(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """A sequence cut over its own axis is planned, not yet lowered."""
    for axis in parts(plan)["cp"]:
        _refuse(_entry(axis, resolved), f"context parallelism over `{axis}` is planned, and not yet lowered", bag)


def _uneven(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """torchtitan's plain shards are equal."""
    for word in resolved.spec.uneven:
        bag.add(
            Diagnostic(
                code="not-launchable",
                message=f"torchtitan cuts in equal parts only, and `{word.value}` is allowed to be uneven",
                label=Label(span=word.span),
            )
        )
