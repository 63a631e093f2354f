"""The mesh as tables: where each rank lies, and who talks to whom over each axis."""

from __future__ import annotations

from ..mesh import Mesh
from ..plan.ir import Plan
from ..plan.slices import lengths_of, unequal
from .blocks import blocks_text
from .schedule import subsequences_text
from .tables import table

#: Longer tables are cut here, and say so.
MOST_ROWS = 64
#: Longer groups are cut in the middle.
MOST_MEMBERS = 16


def mesh_text(plan: Plan, *, rank: int | None = None, ranks_per_node: int | None = None) -> str:
    """Coordinates of every rank, then the groups of each axis; of one rank only when `rank` is given."""
    lines = [f"{plan.ranks} ranks: " + " x ".join(f"{axis.name} {axis.size}" for axis in plan.mesh.axes), ""]
    lines += _ranks(plan.mesh, rank, ranks_per_node)
    lines += ["", "groups"]
    for axis in plan.mesh.axes:
        count = plan.ranks // axis.size
        groups = "1 group" if count == 1 else f"{count} groups"
        lines.append(f"  {axis.name} ({plan.role(axis.name)}, {groups} of {axis.size})")
        lines += [f"    {group}" for group in _groups(plan.mesh, axis.name, rank)]
    if plan.block is not None:
        lines += ["", *blocks_text(plan.block)]
    if unequal(plan):
        text = subsequences_text(plan.slices, lengths_of(plan))
        lines += ["", f"each sequence goes through {'+'.join(plan.axes_of('pipeline'))} in {text}"]
    return "\n".join(lines) + "\n"


def _ranks(mesh: Mesh, rank: int | None, per_node: int | None) -> list[str]:
    shown = range(min(mesh.ranks, MOST_ROWS)) if rank is None else (rank,)
    rows = []
    for each in shown:
        node = [str(each // per_node)] if per_node else []
        rows.append([str(each), *node, *(str(c) for c in mesh.coordinate(each).values())])
    header = ["rank", *(["node"] if per_node else []), *mesh.names]
    lines = table(header, rows, right=frozenset(range(len(header))))
    if rank is None and mesh.ranks > MOST_ROWS:
        lines.append(f"  ... {mesh.ranks - MOST_ROWS} more; --rank R shows one")
    return lines


def _groups(mesh: Mesh, axis: str, rank: int | None) -> list[str]:
    if rank is not None:
        return [_members(mesh, axis, rank)]
    firsts = [r for r in range(min(mesh.ranks, 16 * MOST_ROWS)) if mesh.coordinate(r)[axis] == 0]
    shown = [_members(mesh, axis, r) for r in firsts[: MOST_ROWS // 4]]
    total = mesh.ranks // mesh.size(axis)
    return shown if len(shown) == total else [*shown, f"... {total - len(shown)} more"]


def _members(mesh: Mesh, axis: str, rank: int) -> str:
    """`0 4 8 12`, or `0 4 8 ... 60` when long."""
    here, size = mesh.coordinate(rank), mesh.size(axis)
    shown = range(size) if size <= MOST_MEMBERS else range(MOST_MEMBERS // 2)
    words = [str(mesh.rank({**here, axis: place})) for place in shown]
    if size > MOST_MEMBERS:
        words += ["...", str(mesh.rank({**here, axis: size - 1}))]
    return " ".join(words)
