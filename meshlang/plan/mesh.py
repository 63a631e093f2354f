"""`[mesh]`, `[topology]` and the number of ranks -> Mesh."""

from __future__ import annotations

from ..diagnostics import Bag
from ..language.spec import Spec
from ..mesh import KNOWN_AXES, Mesh, MeshAxis
from . import mesh_findings as findings


def resolve_mesh(spec: Spec, ranks: int | None, bag: Bag) -> Mesh | None:
    """The mesh with its "rest" axis filled in, axes in the order of `[topology]` or the default one."""
    order = check_order(spec, bag)
    entries = {entry.name: entry for entry in spec.mesh}
    asked = ranks if ranks is not None else _launch_ranks(spec)
    sizes = _axis_sizes(spec, asked, bag)
    if sizes is None or any(name not in order for name in entries):
        return None
    return Mesh(axes=tuple(MeshAxis(name=name, size=sizes[name]) for name in order if name in entries))


def _launch_ranks(spec: Spec) -> int | None:
    if spec.launch is None or spec.launch.ranks is None:
        return None
    return spec.launch.ranks.value


def check_order(spec: Spec, bag: Bag) -> tuple[str, ...]:
    """The axes, outermost first; one of the mesh that the order lacks, or the other way round, is a finding."""
    written = spec.topology.order
    if written is None:
        for entry in spec.mesh:
            if entry.name not in KNOWN_AXES:
                bag.add(findings.unordered_axis(entry, spec))
        return KNOWN_AXES
    order = tuple(word.value for word in written)
    names = [entry.name for entry in spec.mesh]
    for word in written:
        if word.value not in names and word.value not in KNOWN_AXES:
            bag.add(findings.unknown_axis(word, names))
    for entry in spec.mesh:
        if entry.name not in order:
            bag.add(findings.order_misses(entry, written))
    return order


def _axis_sizes(spec: Spec, ranks: int | None, bag: Bag) -> dict[str, int] | None:
    rest = next((entry for entry in spec.mesh if entry.size is None), None)
    fixed = {entry.name: entry.size for entry in spec.mesh if entry.size is not None}
    known = 1
    for size in fixed.values():
        known *= size
    if rest is None:
        if ranks is not None and ranks != known:
            bag.add(findings.ranks_differ(spec, known, ranks))
            return None
        return fixed
    if ranks is None:
        bag.add(findings.ranks_needed(rest))
        return None
    if ranks % known:
        bag.add(findings.rest_uneven(rest, known, ranks, spec))
        return None
    return {**fixed, rest.name: ranks // known}


def inside_nodes(spec: Spec, mesh: Mesh, bag: Bag) -> None:
    """Ranks fill whole nodes, or one; those along an axis of `inside_node` share one.

    They lie among as many neighbours as the axis and those inside it have ranks together.
    """
    per_node = spec.topology.ranks_per_node
    if per_node is not None and mesh.ranks > per_node.value and mesh.ranks % per_node.value:
        bag.add(findings.part_of_node(per_node, spec, mesh))
        return
    for word in spec.topology.inside_node:
        near_ranks = mesh.product(mesh.names[mesh.names.index(word.value) :])
        if per_node is None:
            bag.add(findings.node_size_unknown(word))
        elif mesh.size(word.value) > 1 and mesh.ranks > per_node.value and per_node.value % near_ranks:
            bag.add(findings.leaves_node(word, near_ranks, spec, mesh))
