"""One tensor or boundary of a plan: which line decided each dimension, and each rank's part."""

from __future__ import annotations

from ..plan.diff import block
from ..plan.ir import Edge, Origin, Plan, Tensor
from ..plan.promises import said
from .tables import shape_text, table

#: Ranks whose parts are listed one by one.
MOST_RANKS = 32


def tensor_text(plan: Plan, fqn: str) -> str | None:
    """All that the plan knows of a tensor, or of the boundaries of a module; None when it has neither."""
    tensor = plan.by_fqn.get(fqn)
    if tensor is not None:
        return "\n".join(_tensor(plan, tensor, fqn)) + "\n"
    edges = [edge for edge in plan.edges if edge.module == fqn]
    held = [tensor for tensor in plan.tensors if tensor.fqn.rpartition(".")[0] == fqn]
    if not edges and not held:
        return None
    lines = [f"{fqn or 'the model'}"]
    for edge in edges:
        lines += _edge(plan, edge)
    lines += [f"  holds {tensor.fqn}" for tensor in held]
    return "\n".join(lines) + "\n"


def _tensor(plan: Plan, tensor: Tensor, fqn: str) -> list[str]:
    lines = [f"{fqn}: {tensor.kind}, {shape_text(tensor.shape)}"]
    lines += [f"  the same tensor as {', '.join(n for n in (tensor.fqn, *tensor.tied) if n != fqn)}"] * bool(
        tensor.tied
    )
    rows = []
    for index, dim in enumerate(tensor.dims):
        over = " x ".join(f"{axis} {plan.mesh.size(axis)}" for axis in dim.axes) or "whole"
        rows.append([str(index), dim.text, str(dim.size), over, decided_by(dim.origin)])
    lines += table(["dim", "names", "size", "cut over", "decided by"], rows)
    placed = ", ".join(f"{axis} {said(tensor, axis)}" for axis in plan.mesh.names)
    lines.append(f"  placements: {placed}")
    if tensor.stored:
        lines.append(f"  at rest also cut along dim 0 over {' x '.join(tensor.stored)}, inside the part above")
    if plan.stages:
        stage = plan.stage_of[tensor.fqn]
        axis = "+".join(plan.axes_of("pipeline"))
        lines.append(f"  in stage {stage.index}, on the ranks with {axis} = {' or '.join(map(str, stage.coordinates))}")
    if tensor.grad:
        lines.append(f"  gradient: a sum over {', '.join(tensor.grad)}")
    return [*lines, "", *_parts(plan, tensor)]


def decided_by(origin: Origin) -> str:
    """`[place] at run.toml:12`; a card and a strategy are known by their names."""
    return str(origin) if origin.by == "card" else f"[{origin.by}] at {origin}"


def _parts(plan: Plan, tensor: Tensor) -> list[str]:
    rows = []
    for rank in range(min(plan.ranks, MOST_RANKS)):
        coordinate = plan.mesh.coordinate(rank)
        if not plan.holds(tensor, coordinate):
            rows.append([str(rank), "-", "none: another stage"])
            continue
        ranges = ", ".join(f"{a}:{b}" for a, b in block(tensor, plan, rank))
        rows.append([str(rank), shape_text(tensor.local_shape(plan.mesh, coordinate)), f"[{ranges}]"])
    lines = table(["rank", "keeps", "rows of each dim"], rows, right=frozenset({0}))
    if plan.ranks > MOST_RANKS:
        lines.append(f"  ... {plan.ranks - MOST_RANKS} more")
    return lines


def _edge(plan: Plan, edge: Edge) -> list[str]:
    dims = " ".join(f[0] if len(f) == 1 else f"({' '.join(f)})" for f in edge.names)
    kinds = []
    for axis in plan.mesh.names:
        src, dst = edge.src.kind(axis), edge.dst.kind(axis)
        kinds.append(f"{axis} {src}" if src == dst else f"{axis} {src} -> {dst}")
    return [f"  {edge.port}: {dims}, {shape_text(edge.shape)}; {', '.join(kinds)}"]
