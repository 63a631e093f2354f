"""`[expect]` and `[[check]]`: what a spec promises of its plan, held against the plan."""

from __future__ import annotations

from ..amounts import bytes_text
from ..diagnostics import Bag, Diagnostic, Label
from ..fold import told
from ..language.spec import Check, Written
from .cost import memory
from .ir import Plan, Tensor, numel
from .resolved import Resolved
from .words import listed


def promises(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """Every promise of the spec, into the bag where the plan breaks it."""
    _memory(plan, resolved, bag)
    _sharded(plan, resolved, bag)
    for check in resolved.spec.checks:
        for finding in broken(check, plan):
            bag.add(finding)


def broken(check: Check, plan: Plan) -> list[Diagnostic]:
    """The findings of one `[[check]]`; none when it holds."""
    tensors = [tensor for tensor in plan.tensors if any(check.tensor.covers(n) for n in (tensor.fqn, *tensor.tied))]
    found = []
    for axis, word in check.expect.items():
        wrong = [tensor for tensor in tensors if said(tensor, axis) != _wanted(word)]
        if wrong:
            found.append(_broken(check, word, axis, wrong, [tensor.fqn for tensor in plan.tensors]))
    return found


def said(tensor: Tensor, axis: str) -> str:
    """How an axis places a tensor: "R", "S(i)", or "stored S(0)" for a cut at rest only."""
    if axis in tensor.stored:
        return "stored S(0)"
    return str(tensor.layout.placement(axis))


def _wanted(word: Written[str]) -> str:
    return "stored S(0)" if word.value == "stored" else word.value


def _broken(check: Check, word: Written[str], axis: str, wrong: list[Tensor], known: list[str]) -> Diagnostic:
    first, groups = wrong[0], {said(tensor, axis): [] for tensor in wrong}
    for tensor in wrong:
        groups[said(tensor, axis)].append(tensor.fqn)
    what = f"`{first.fqn}` is {said(first, axis)}"
    if len(wrong) > 1:
        what = f"{len(wrong)} tensors are {' or '.join(groups)}"
    return Diagnostic(
        code="check-failed",
        message=f"{check.name.value}: {what} on `{axis}`, not {word.value}",
        label=Label(span=word.span, text="expected here"),
        notes=tuple(f"{kind}: {told(fqns, known)}" for kind, fqns in groups.items()) if len(wrong) > 1 else (),
    )


def _memory(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """State, gathered weights, gradients not yet summed, and activations where the sizes are known."""
    promise = resolved.spec.expect.memory_per_rank
    if promise is None:
        return
    found = memory(plan)
    if found.total <= promise.value:
        if found.activations is None:
            bag.add(_uncounted(promise, plan))
        return
    parts = f"state {bytes_text(found.state)}, gathered weights {bytes_text(found.gathered)}"
    parts += f", gradients not yet summed {bytes_text(found.unsummed)}"
    kind = "a rough estimate" if found.rough else "an estimate"
    values = f"activations {bytes_text(found.activations)}, {kind}"
    held, more = bytes_text(found.total), bytes_text(found.total - promise.value)
    bag.add(
        Diagnostic(
            code="expect-failed",
            message=f"the fullest rank holds {held}, {more} more than promised",
            label=Label(span=promise.span, text=f"{found.total} bytes are more than {promise.value}"),
            notes=(
                parts,
                values if found.activations is not None else "without `batch` and `seq`, activations are not counted",
            ),
        )
    )


def _uncounted(promise: Written[int], plan: Plan) -> Diagnostic:
    """What a rank holds is more than its state: a promise that nothing was counted against holds by chance."""
    lacking = [name for name in ("batch", "seq") if getattr(plan.sizes, name) is None]
    return Diagnostic(
        code="sizes-needed",
        message=f"how many activations a rank holds is not known without {listed(lacking)} in [sizes]",
        label=Label(span=promise.span, text="promised here"),
        notes=(f"all else comes to {bytes_text(memory(plan).total)}",),
    )


def _sharded(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    promise = resolved.spec.expect.state_sharded
    if promise is None:
        return
    share = sharded_share(plan)
    if share < promise.value:
        parameters = [t for t in plan.tensors if t.kind == "parameter"]
        whole = [t.fqn for t in parameters if not _cut(t, plan)]
        bag.add(
            Diagnostic(
                code="expect-failed",
                message=f"{_rounded(share)} of the state is cut over some axis, and {promise.span.text} is promised",
                label=Label(span=promise.span),
                notes=(f"whole on every rank: {told(whole, [t.fqn for t in parameters])}",),
            )
        )


def _rounded(share: float) -> str:
    """Three digits, rounded down: what falls short never reads as if it did not."""
    return f"{int(share * 1000) / 1000:.3f}"


def sharded_share(plan: Plan) -> float:
    """Share of the parameters' elements that lie in tensors which some axis cuts, computing or at rest."""
    parameters = [t for t in plan.tensors if t.kind == "parameter"]
    total = sum(numel(t.shape) for t in parameters)
    return sum(numel(t.shape) for t in parameters if _cut(t, plan)) / total if total else 1.0


def _cut(tensor: Tensor, plan: Plan) -> bool:
    axes = {axis for dim in tensor.dims for axis in dim.axes} | set(tensor.stored)
    return any(plan.mesh.size(axis) > 1 for axis in axes)
