"""A plan as a golden file that people review: TOML, one line a fact, equal layers told once."""

from __future__ import annotations

import json
from collections.abc import Iterable

from ..fold import fold
from ..plan.cost import memory
from ..plan.ir import Option, PipelineUse, Plan, Stage
from ..plan.promises import said
from .plan import grouped, of_replica
from .tables import shape_text

_NOTE = "# Written by `meshlang plan --lock`; `--update` writes it anew. Review it as you review code."


def lock_text(plan: Plan) -> str:
    """The golden file of a plan."""
    assert plan.state_bytes is not None
    lines = [_NOTE, "lock = 1", f"model = {json.dumps(plan.model)}", f"ranks = {plan.ranks}", "", "[mesh]"]
    lines += [f"{axis.name} = {axis.size}" for axis in plan.mesh.axes]
    lines += _strategies(plan)
    lines += [] if plan.pipeline is None else _pipeline(plan.pipeline)
    lines += _stages(plan)
    if plan.recompute:
        known = list(dict.fromkeys(edge.module for edge in plan.edges))
        lines += ["", "[recompute]", f"modules = {json.dumps(fold(plan.recompute, known))}"]
    lines += ["", "[tensors]", *_sorted(_tensors(plan))]
    lines += ["", "[collectives]", *_sorted(_collectives(plan))]
    state = plan.state_bytes
    lines += ["", "[state_bytes]", f"parameters = {state.parameters}", f"gradients = {state.gradients}"]
    lines += [f"optimizer = {state.optimizer}", f"total = {state.total}"]
    held = memory(plan)
    lines += ["", "[memory]", f"gathered = {held.gathered}", f"unsummed = {held.unsummed}"]
    lines += [] if held.activations is None else [f"activations = {held.activations}"]
    return "\n".join(lines) + "\n"


def _strategies(plan: Plan) -> list[str]:
    lines = _sorted((f"{use.name} over {use.axis}", "; ".join(_options(use.options))) for use in plan.strategies)
    return ["", "[strategies]", *lines] if lines else []


def _pipeline(use: PipelineUse) -> list[str]:
    numbers = (("microbatches", use.microbatches), ("subsequences", use.subsequences), ("chunks", use.chunks))
    lines = [f"{key} = {value}" for key, value in numbers if value is not None]
    lines += [f"lengths = {list(use.lengths)}"] if len(set(use.lengths)) > 1 else []
    own = "; ".join(_options(use.options))
    return [
        "",
        "[pipeline]",
        f"schedule = {json.dumps(use.schedule)}",
        *lines,
        *([f"keys = {json.dumps(own)}"] * bool(own)),
        *(["order = [", *(f"    {json.dumps(' '.join(row))}," for row in use.order), "]"] if use.ops == "csv" else []),
    ]


def _options(options: tuple[tuple[str, Option], ...]) -> Iterable[str]:
    """A plugin's keys as they hold, defaults too: a later default that differs is a drift."""
    for key, value in options:
        if value is not None:
            yield f"{key} {value if isinstance(value, str) else json.dumps(value)}"


def _stages(plan: Plan) -> list[str]:
    if not plan.stages:
        return []
    known = [module for stage in plan.stages for module in stage.modules]
    lines = [f'{s.index} = "{", ".join(fold(s.modules, known))}; {_where(s)}"' for s in plan.stages]
    return ["", "[stages]", *lines]


def _where(stage: Stage) -> str:
    if stage.mirror is None:
        return f"coordinate {stage.coordinate}"
    return f"coordinates {stage.coordinate} and {stage.mirror}"


def _sorted(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in sorted(pairs)]


def _tensors(plan: Plan) -> Iterable[tuple[str, str]]:
    names = [tensor.fqn for tensor in plan.tensors]
    origin = plan.mesh.coordinate(0)
    for group in grouped(plan.tensors, lambda t: (t.shape, tuple((d.text, d.axes) for d in t.dims), t.stored, t.grad)):
        first = group[0]
        axes = [axis for axis in plan.mesh.names if not plan.stages or plan.role(axis) != "pipeline"]
        placed = ", ".join(f"{axis} {said(first, axis)}" for axis in axes)
        local = first.local_shape(plan.mesh, origin)
        grad = f"; gradient summed over {', '.join(first.grad)}" if first.grad else ""
        dims = " ".join(dim.text for dim in first.dims)
        value = f"{dims}: {shape_text(first.shape)} -> {shape_text(local)}; {placed}{grad}"
        yield ", ".join(fold([t.fqn for t in group], names)), value


def _collectives(plan: Plan) -> Iterable[tuple[str, str]]:
    rows: dict[str, list[str]] = {}
    for call in plan.collectives:
        size = "?" if call.bytes is None else str(call.bytes)
        stage = "" if call.stage is None else f"stage {call.stage}: "
        key = f"{stage}{call.pass_} {call.kind} over {call.axis}: {call.where}{of_replica(call)}"
        rows.setdefault(key, []).append(f"{call.count} of {size} bytes")
    return ((key, " + ".join(values)) for key, values in rows.items())
