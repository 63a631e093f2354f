"""A plan's mesh as torch's DeviceMesh, and the sub-meshes that a plan's axes span.

`_flatten`, `_unflatten` and `_concatenate` of DeviceMesh are private to torch; they are used
here only, and `tests/lowering/test_storage_mesh.py` says when they move.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from ..mesh import Mesh
from ..plan.ir import Plan


def device_mesh(mesh: Mesh, device_type: str) -> DeviceMesh:
    """The mesh over the ranks of this run, under the plan's axis names.

    Collective: every rank of the run calls it, in the same order as any other mesh.
    """
    shape = tuple(axis.size for axis in mesh.axes)
    return init_device_mesh(device_type, shape, mesh_dim_names=mesh.names)


def active(plan: Plan, axes: Iterable[str]) -> tuple[str, ...]:
    """The axes of more than one rank among these, in mesh order."""
    wanted = set(axes)
    return tuple(axis.name for axis in plan.mesh.axes if axis.name in wanted and axis.size > 1)


def compute_axes(plan: Plan) -> tuple[str, ...]:
    """The axes that cut weights while computing: those that DTensor knows of."""
    return active(plan, plan.axes_of("tensor"))


def replica_axes(plan: Plan) -> tuple[str, ...]:
    """The axes over which each rank computes the same weights on other tokens."""
    return active(plan, plan.axes_of("data", "context"))


def compute_mesh(plan: Plan, mesh: DeviceMesh) -> DeviceMesh | None:
    """The sub-mesh of `compute_axes`, or None where there is none."""
    axes = compute_axes(plan)
    return mesh[axes] if axes else None


def storage_mesh(mesh: DeviceMesh, replicated: Sequence[str], stored: Sequence[str]) -> DeviceMesh:
    """The mesh that FSDP works on: over `stored` it cuts parameters, over `replicated` it only sums.

    One dimension when nothing is replicated, else two, the second of them of size 1 when
    nothing is stored.
    """
    if not replicated:
        return _as_one(mesh, stored)
    if not stored:
        whole = _as_one(mesh, replicated)
        name = "_".join(replicated)
        return whole._unflatten(0, (whole.size(), 1), (f"{name}_copies", f"{name}_parts"))
    return DeviceMesh._concatenate([_as_one(mesh, replicated), _as_one(mesh, stored)])


def _as_one(mesh: DeviceMesh, axes: Sequence[str]) -> DeviceMesh:
    if len(axes) == 1:
        return mesh[axes[0]]
    return mesh[tuple(axes)]._flatten("_".join(axes))
