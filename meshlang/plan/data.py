"""Plan <-> JSON: from_json(to_json(plan)) == plan. The same document is what `plan --json` prints."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from ..card.read import parse_dims
from ..mesh import Mesh, MeshAxis
from ..pipeline.notation import program_data, read_program
from ..placement import Layout
from .blocks import from_data as read_blocks
from .blocks import to_data as block_data
from .calls import calls_at
from .cost import memory
from .ir import (
    Collective,
    Dim,
    Edge,
    Loss,
    Option,
    Origin,
    PipelineUse,
    Plan,
    Precision,
    RunSizes,
    Saved,
    Stage,
    StateBytes,
    StrategyUse,
    Tensor,
    Unit,
)
from .promises import said

FORMAT = 1


def to_json(plan: Plan, *, rank: int = 0, indent: int | None = None) -> str:
    """The document as text; local shapes are those of `rank`."""
    return json.dumps(to_data(plan, rank=rank), indent=indent)


def to_data(plan: Plan, *, rank: int = 0) -> dict[str, Any]:
    """The document: plain dicts, lists, strings and numbers."""
    coordinate = plan.mesh.coordinate(rank)
    return {
        "format": FORMAT,
        "model": plan.model,
        "ranks": plan.ranks,
        "rank": rank,
        "mesh": [{"axis": axis.name, "size": axis.size, "role": plan.role(axis.name)} for axis in plan.mesh.axes],
        "sizes": asdict(plan.sizes),
        "precision": asdict(plan.precision),
        "tensors": [_tensor(tensor, plan, coordinate) for tensor in plan.tensors],
        "edges": [_edge(edge) for edge in plan.edges],
        "units": [asdict(unit) for unit in plan.units],
        "collectives": [_collective(call) for call in plan.collectives],
        "state_bytes": None if plan.state_bytes is None else _state(plan.state_bytes),
        "loss": None if plan.loss is None else {**asdict(plan.loss), "layout": _layout(plan.loss.layout)},
        "strategies": [{**asdict(use), "options": dict(use.options)} for use in plan.strategies],
        "pipeline": None if plan.pipeline is None else _pipeline(plan.pipeline),
        "stages": [_stage(stage) for stage in plan.stages],
        "recompute": list(plan.recompute),
        **({} if plan.block is None else {"block": block_data(plan.block)}),
        "saved": [_saved(each) for each in plan.saved],
        "memory": memory_data(plan),
        "communication": communication(plan, rank),
    }


def _pipeline(use: PipelineUse) -> dict[str, Any]:
    """A schedule; its program as each rank's operations, as `meshlang schedule --json` writes them."""
    data = {**asdict(replace(use, program=None)), "options": dict(use.options)}
    del data["program"]
    return data if use.program is None else {**data, "program": program_data(use.program)}


def _stage(stage: Stage) -> dict[str, Any]:
    data = asdict(stage)
    return {key: value for key, value in data.items() if key != "mirror" or value is not None}


def _tensor(tensor: Tensor, plan: Plan, coordinate: dict[str, int]) -> dict[str, Any]:
    return {
        "fqn": tensor.fqn,
        "kind": tensor.kind,
        "shape": list(tensor.shape),
        "dims": [dim.text for dim in tensor.dims],
        "placements": {axis: _placement(tensor, axis, plan) for axis in plan.mesh.names},
        "stage": plan.stage_of[tensor.fqn].index if plan.stages else None,
        "local_shape": list(tensor.local_shape(plan.mesh, coordinate)) if plan.holds(tensor, coordinate) else None,
        "origin": [asdict(dim.origin) for dim in tensor.dims],
        "units": [dim.units for dim in tensor.dims],
        "cuts": [list(dim.axes) for dim in tensor.dims],
        "stored": list(tensor.stored),
        "gradient": list(tensor.grad),
        "tied": list(tensor.tied),
    }


def _placement(tensor: Tensor, axis: str, plan: Plan) -> str:
    if plan.stages and axis in plan.axes_of("pipeline"):
        return f"stage {plan.stage_of[tensor.fqn].index}"
    return said(tensor, axis)


def _edge(edge: Edge) -> dict[str, Any]:
    return {
        "module": edge.module,
        "port": edge.port,
        "dims": [_text(factors) for factors in edge.names],
        "shape": list(edge.shape),
        "src": _layout(edge.src),
        "dst": _layout(edge.dst),
        "whole": list(edge.whole),
    }


def _text(factors: tuple[str, ...]) -> str:
    return factors[0] if len(factors) == 1 else f"({' '.join(factors)})"


def _layout(layout: Layout) -> dict[str, Any]:
    return {
        "cuts": [list(axes) for axes in layout.dims],
        "partial": list(layout.partial),
        "gradient": list(layout.grad),
    }


def _collective(call: Collective) -> dict[str, Any]:
    data = asdict(call)
    return {"pass" if key == "pass_" else key: value for key, value in data.items()}


def _saved(saved: Saved) -> dict[str, Any]:
    """Without what is not said: there is an entry for each value of each layer."""
    plain = Saved(module=saved.module)
    return {"module": saved.module} | {key: v for key, v in asdict(saved).items() if v != getattr(plain, key)}


def _read_saved(item: dict[str, Any]) -> Saved:
    lists = {key: tuple(map(tuple, item[key])) for key in ("names", "cuts") if key in item}
    shape = {"shape": tuple(item["shape"])} if "shape" in item else {}
    return Saved(**{**item, **lists, **shape})


def memory_data(plan: Plan) -> dict[str, Any]:
    """Bytes of the fullest rank; derived from the rest of the document, and not read again."""
    found = memory(plan)
    return {**asdict(found), "total": found.total}


def communication(plan: Plan, rank: int) -> dict[str, Any]:
    """Axis -> messages and bytes of a step of the rank's, None where a size is not known; derived, not read again."""
    found: dict[str, Any] = {}
    for call in calls_at(plan, rank):
        entry = found.setdefault(call.axis, {"messages": 0, "bytes": 0})
        entry["messages"] += call.count
        known = entry["bytes"] is not None and call.bytes is not None
        entry["bytes"] = entry["bytes"] + call.count * (call.bytes or 0) if known else None
    return found


def _state(state: StateBytes) -> dict[str, int]:
    return {**asdict(state), "total": state.total}


def from_json(text: str) -> Plan:
    """The plan that `to_json` wrote.

    Raises:
        ValueError: the text is of another format.
    """
    return from_data(json.loads(text))


def from_data(data: dict[str, Any]) -> Plan:
    """The plan of a document made by `to_data`.

    Raises:
        ValueError: the document is of another format.
    """
    if data.get("format") != FORMAT:
        raise ValueError(f"a plan of format {FORMAT} is read, not {data.get('format')!r}")
    state, loss = data["state_bytes"], data["loss"]
    return Plan(
        model=data["model"],
        mesh=Mesh(axes=tuple(MeshAxis(name=axis["axis"], size=axis["size"]) for axis in data["mesh"])),
        roles=tuple((axis["axis"], axis["role"]) for axis in data["mesh"]),
        sizes=RunSizes(**data["sizes"]),
        precision=Precision(**{**data["precision"], "written": tuple(data["precision"]["written"])}),
        tensors=tuple(_read_tensor(item) for item in data["tensors"]),
        edges=tuple(_read_edge(item) for item in data["edges"]),
        units=tuple(_read_unit(item) for item in data["units"]),
        collectives=tuple(_read_collective(item) for item in data["collectives"]),
        state_bytes=None if state is None else StateBytes(**{k: v for k, v in state.items() if k != "total"}),
        loss=None
        if loss is None
        else Loss(shape=tuple(loss["shape"]), layout=_read_layout(loss["layout"]), vocab=loss["vocab"]),
        strategies=tuple(StrategyUse(**{**item, "options": _options(item)}) for item in data["strategies"]),
        pipeline=None if data["pipeline"] is None else _read_pipeline(data["pipeline"]),
        stages=tuple(Stage(**{**item, "modules": tuple(item["modules"])}) for item in data["stages"]),
        recompute=tuple(data["recompute"]),
        block=read_blocks(data["block"]) if "block" in data else None,
        saved=tuple(_read_saved(item) for item in data["saved"]),
    )


def _read_tensor(item: dict[str, Any]) -> Tensor:
    names = parse_dims(" ".join(item["dims"]))
    dims = zip(names, item["shape"], item["units"], item["cuts"], item["origin"], strict=True)
    return Tensor(
        fqn=item["fqn"],
        kind=item["kind"],
        dims=tuple(
            Dim(names=n, size=size, units=units, axes=tuple(axes), origin=Origin(**origin))
            for n, size, units, axes, origin in dims
        ),
        stored=tuple(item["stored"]),
        grad=tuple(item["gradient"]),
        tied=tuple(item["tied"]),
    )


def _read_edge(item: dict[str, Any]) -> Edge:
    return Edge(
        module=item["module"],
        port=item["port"],
        names=parse_dims(" ".join(item["dims"])),
        shape=tuple(item["shape"]),
        src=_read_layout(item["src"]),
        dst=_read_layout(item["dst"]),
        whole=tuple(item["whole"]),
    )


def _read_layout(item: dict[str, Any]) -> Layout:
    return Layout(
        dims=tuple(tuple(axes) for axes in item["cuts"]), partial=tuple(item["partial"]), grad=tuple(item["gradient"])
    )


def _read_unit(item: dict[str, Any]) -> Unit:
    return Unit(modules=tuple(item["modules"]), tensors=tuple(item["tensors"]), after_forward=item["after_forward"])


def _read_collective(item: dict[str, Any]) -> Collective:
    return Collective(**{"pass_" if key == "pass" else key: value for key, value in item.items()})


def _read_pipeline(item: dict[str, Any]) -> PipelineUse:
    order = tuple(tuple(actions) for actions in item["order"])
    program = read_program(item["program"]) if "program" in item else None
    lengths = tuple(item["lengths"])
    return PipelineUse(**{**item, "order": order, "program": program, "lengths": lengths, "options": _options(item)})


def _options(item: dict[str, Any]) -> tuple[tuple[str, Option], ...]:
    """A plugin's options; a JSON array is a tuple again."""
    return tuple((key, tuple(value) if isinstance(value, list) else value) for key, value in item["options"].items())
