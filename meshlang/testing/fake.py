"""One process stands for any rank of a mesh: shapes and placements are real, values are not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

from ..compiler import Request, compile
from ..mesh import Mesh
from ..plan.ir import Plan, Tensor
from ..source import Source
from .placements import Cut, cuts, part
from .seams import seam

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True, kw_only=True)
class FakeMesh:
    """A plan on the fake mesh of one rank.

    Attributes:
        plan: of the spec, for all ranks.
        mesh: a DeviceMesh under the plan's axis names.
        rank: the one that this process stands for.
    """

    plan: Plan
    mesh: DeviceMesh
    rank: int

    @property
    def coordinate(self) -> dict[str, int]:
        """Axis name -> coordinate of the rank."""
        return self.plan.mesh.coordinate(self.rank)

    def distribute(self, module: M) -> M:
        """The module itself, each parameter a DTensor that holds what this rank keeps at rest.

        A parameter on the meta device stays there; tied parameters stay tied.

        Raises:
            ValueError: with every parameter that the plan lacks or knows under another shape.
        """
        named = list(module.named_parameters(remove_duplicate=False))
        misfits = [line for fqn, parameter in named for line in _misfits(fqn, parameter, self.plan)]
        if misfits:
            raise ValueError("the plan does not fit the module:\n" + "\n".join(misfits))
        made: dict[nn.Parameter, nn.Parameter] = {}
        for fqn, parameter in named:
            if parameter not in made:
                made[parameter] = self._distributed(parameter, self.plan.by_fqn[fqn])
            holder, _, name = fqn.rpartition(".")
            setattr(module.get_submodule(holder), name, made[parameter])
        return module

    def _distributed(self, parameter: nn.Parameter, tensor: Tensor) -> nn.Parameter:
        """Built of the local part: where parts are unequal, DTensor would cut elsewhere than the plan."""
        local = parameter.detach()
        for dim, (start, length) in enumerate(part(tensor, self.plan.mesh, self.coordinate)):
            local = local.narrow(dim, start, length)
        whole = torch.empty(tensor.shape, device="meta")
        dtensor = DTensor.from_local(
            local.contiguous(),
            self.mesh,
            _placements(tensor, self.plan.mesh),
            run_check=False,
            shape=whole.shape,
            stride=whole.stride(),
        )
        return nn.Parameter(dtensor, requires_grad=parameter.requires_grad)


def _misfits(fqn: str, parameter: nn.Parameter, plan: Plan) -> Iterator[str]:
    tensor = plan.by_fqn.get(fqn)
    if tensor is None:
        yield f"{fqn}: is no tensor of the plan"
    elif tuple(parameter.shape) != tensor.shape:
        yield f"{fqn}: has shape {tuple(parameter.shape)}, the plan {tensor.shape}"


def _placements(tensor: Tensor, mesh: Mesh) -> tuple[Placement, ...]:
    return tuple(_placement(cut) for cut in cuts(tensor, mesh, [(axis,) for axis in mesh.names]))


def _placement(cut: Cut | None) -> Placement:
    if cut is None:
        return Replicate()
    return Shard(cut.dim) if cut.split == 1 else seam("StridedShard")(cut.dim, split_factor=cut.split)


@contextmanager
def fake_mesh(
    spec: Plan | Request | Source | str | Path, ranks: int | None = None, rank: int = 0
) -> Iterator[FakeMesh]:
    """Inside, this process is rank `rank` of the plan's mesh, on torch's fake process group.

    Collectives return at once, and values that crossed ranks mean nothing.

    Args:
        spec: a plan; or a request, a text, or the path of a spec, which is compiled.
        ranks: of the whole mesh; left out where the spec or the plan says it.
        rank: the one to stand for.

    Raises:
        SpecError: the spec has findings.
        ValueError: the mesh has no axis, or not these ranks.
        RuntimeError: a process group exists already, such as that of another fake mesh.
    """
    plan = _plan(spec, ranks)
    if not plan.mesh.axes:
        raise ValueError("the mesh has no axis: there is nothing to stand for")
    if not 0 <= rank < plan.ranks:
        raise ValueError(f"there is no rank {rank} of {plan.ranks}")
    with fake_group(plan.ranks, rank):
        yield FakeMesh(plan=plan, mesh=fake_device_mesh(plan.mesh), rank=rank)


def fake_device_mesh(mesh: Mesh) -> DeviceMesh:
    """The mesh over the ranks of the process group, under its axis names."""
    return init_device_mesh("cpu", tuple(axis.size for axis in mesh.axes), mesh_dim_names=mesh.names)


@contextmanager
def fake_group(ranks: int, rank: int = 0) -> Iterator[None]:
    """Inside, a fake process group of `ranks` is the default one; it is gone afterwards, whatever happens.

    Raises:
        RuntimeError: a process group exists already.
    """
    if dist.is_initialized():
        here = f"{dist.get_backend()} group of {dist.get_world_size()} ranks"
        raise RuntimeError(f"this process is in a {here} already: fake meshes and local ranks do not nest")
    store = seam("FakeStore")()
    try:
        dist.init_process_group("fake", store=store, rank=rank, world_size=ranks)
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _plan(spec: Plan | Request | Source | str | Path, ranks: int | None) -> Plan:
    if isinstance(spec, Plan):
        if ranks not in (None, spec.ranks):
            raise ValueError(f"the plan is for {spec.ranks} ranks, not {ranks}")
        return spec
    if isinstance(spec, Request):
        return compile(spec if ranks is None else replace(spec, ranks=ranks))
    source = spec if isinstance(spec, Source) else Source.read(spec)
    return compile(Request(source=source, ranks=ranks))
