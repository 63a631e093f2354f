"""What happens to a value at the boundary of a module: checked against the plan, and moved as it says.

Tensor axes are DTensor's: inside the model a value is a DTensor over them. Data and context
axes are not: over them each rank holds a plain part, and moves are collectives on it. Where a
plan has no tensor axis, values stay plain.

Every gradient is moved the way back that the plan prints. One that arrives in another layout
than the plan says is an error, never a silent reduction.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Partial, Placement

from ..card.model import RUN_SIZES
from ..plan.ir import Edge, Plan
from .errors import LoweringError
from .layout import Move, grad_placements, moves, placements
from .mesh import active, compute_axes
from .move import move_local

Placements = tuple[Placement, ...]


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """One port of one module, in torch's terms.

    Attributes:
        names: of the value's dims. sizes: of those that the model alone decides; else None.
        tensor: the mesh of the tensor axes, or None without any.
        src, dst, grad_src, grad_dst: what the tensor axes do before and after.
        steps: the moves, in order, each with the one-dimensional mesh of its axis.
        given: another boundary has made the value a DTensor, unless the model made the value itself.
    """

    where: str
    names: tuple[str, ...]
    sizes: tuple[int | None, ...]
    tensor: DeviceMesh | None
    src: Placements
    dst: Placements
    grad_src: Placements
    grad_dst: Placements
    steps: tuple[tuple[Move, DeviceMesh], ...]
    given: bool = False

    def enter(self, x: torch.Tensor) -> torch.Tensor:
        """`x` as the plan says it comes: a plain tensor is taken to be this rank's part of it."""
        if self.tensor is not None and not isinstance(x, DTensor):
            self._made(x)
            x = wrap(x, self.tensor, self.src, self.grad_src, self.where)
        elif isinstance(x, DTensor) and not alike(x.placements, self.src):
            raise LoweringError([f"{self.where} comes as {x.placements}, in the plan as {self.src}"])
        self._fits(x)
        return x

    def _made(self, x: torch.Tensor) -> None:
        """Numbers that count, as positions do, and come from no other module are whole: no part of anything."""
        if self.given and not x.is_floating_point() and any(kept.is_shard() for kept in self.src):
            raise LoweringError([f"{self.where} is made by the model, in the plan it comes as {self.src}: see `made`"])

    def _fits(self, x: torch.Tensor) -> None:
        """Its dims are those of the card, as far as these do not depend on the run."""
        sizes = zip(x.shape, self.sizes, strict=False)
        if x.ndim != len(self.sizes) or any(size not in (found, None) for found, size in sizes):
            named = ", ".join(f"{n} {s}" if s is not None else n for n, s in zip(self.names, self.sizes, strict=True))
            raise LoweringError([f"{self.where} has the shape {tuple(x.shape)}, in the plan ({named})"])

    def move(self, x: torch.Tensor) -> torch.Tensor:
        """`x` as the plan says it goes on."""
        for step, mesh in self.steps:
            if self.tensor is not None and step.axis in (self.tensor.mesh_dim_names or ()):
                x = _move_in_band(x, self.tensor, step, self.where)
            else:
                x = self._move_out_of_band(x, mesh, step)
        return self._watched(x)

    def _watched(self, x: torch.Tensor) -> torch.Tensor:
        """`x`, whose gradient must come as the plan says, also where nothing moves."""
        if not isinstance(x, DTensor) or not x.requires_grad:
            return x
        watched: torch.Tensor = _Watch.apply(x, self.grad_dst, self.where)
        return watched

    def _move_out_of_band(self, x: torch.Tensor, mesh: DeviceMesh, step: Move) -> torch.Tensor:
        if not isinstance(x, DTensor):
            return move_local(x, mesh.get_group(), step)
        assert self.tensor is not None
        grads = self._grads_now(x)
        local = move_local(unwrap(x, grads, self.where), mesh.get_group(), step)
        return wrap(local, self.tensor, tuple(x.placements), grads, self.where)

    def _grads_now(self, x: DTensor) -> Placements:
        """Gradient placements before or after the tensor axes' own move, whichever holds now."""
        return self.grad_dst if alike(x.placements, self.dst) else self.grad_src

    def local(self, x: torch.Tensor) -> torch.Tensor:
        """The plain part of a value that has been moved."""
        return unwrap(x, self.grad_dst, self.where) if isinstance(x, DTensor) else x


def boundary(plan: Plan, edge: Edge, mesh: DeviceMesh) -> Boundary:
    """An edge of the plan over the axes of a device mesh."""
    names = compute_axes(plan)
    axes = active(plan, plan.axes_of("data", "context", "tensor"))
    return Boundary(
        where=f"{edge.module or 'the model'} {edge.port}",
        names=tuple(" ".join(factors) for factors in edge.names),
        sizes=tuple(_size(plan, edge, dim) for dim in range(len(edge.names))),
        tensor=mesh[names] if names else None,
        src=placements(edge.src, names),
        dst=placements(edge.dst, names),
        grad_src=grad_placements(edge.src, names),
        grad_dst=grad_placements(edge.dst, names),
        steps=tuple((step, mesh[step.axis]) for step in moves(edge.src, edge.dst, axes)),
        given=edge.port != "output"
        and bool(edge.module)
        and any(each.module == "" and each.port != "output" for each in plan.edges),
    )


def _size(plan: Plan, edge: Edge, dim: int) -> int | None:
    """The whole size of a dim that every rank sees in full, or as a DTensor; None where the run decides it."""
    of_run = any(name in RUN_SIZES for name in edge.names[dim])
    cut = active(plan, (*edge.src.dims[dim], *edge.dst.dims[dim]))
    others = any(axis not in compute_axes(plan) for axis in cut)
    return None if of_run or others else edge.shape[dim]


def alike(found: Placements, wanted: Placements) -> bool:
    """Whether these are the same placements; a sum is a sum, by whatever mask its terms are made."""
    return len(found) == len(wanted) and all(_alike(a, b) for a, b in zip(found, wanted, strict=True))


def _alike(found: Placement, wanted: Placement) -> bool:
    return found.is_partial() and wanted.is_partial() if found.is_partial() else found == wanted


def wrap(x: torch.Tensor, mesh: DeviceMesh, kept: Placements, grads: Placements, where: str) -> DTensor:
    """The DTensor whose local part is `x`; its gradient comes as `grads` and goes on as its local part."""
    return _Wrap.apply(x, mesh, kept, grads, where)


def unwrap(x: DTensor, grads: Placements, where: str) -> torch.Tensor:
    """The local part of a DTensor; its gradient, one part a rank, goes on as a DTensor laid out as `grads`."""
    return _Unwrap.apply(x, grads, where)


def _move_in_band(x: torch.Tensor, mesh: DeviceMesh, step: Move, where: str) -> torch.Tensor:
    """One tensor axis' move, by DTensor; the other tensor axes stay as they are."""
    assert isinstance(x, DTensor)
    index = (mesh.mesh_dim_names or ()).index(step.axis)
    return _Redistribute.apply(x, index, step, where)


def _with(kept: Placements, index: int, placement: Placement) -> Placements:
    return (*kept[:index], placement, *kept[index + 1 :])


def _check(grad: torch.Tensor, wanted: Placements, where: str) -> DTensor:
    assert isinstance(grad, DTensor), f"{where}: a plain gradient"
    if not alike(tuple(grad.placements), wanted):
        raise LoweringError([f"the gradient of {where} comes as {grad.placements}, in the plan as {wanted}"])
    return grad


class _Watch(torch.autograd.Function):
    """Nothing, but that the gradient is checked."""

    @staticmethod
    def forward(ctx, x, grads, where):
        ctx.grads, ctx.where = grads, where
        return x.detach()

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        return _check(grad, ctx.grads, ctx.where), None, None


class _Redistribute(torch.autograd.Function):
    """The move along one axis of the mesh, and the gradient's move back."""

    @staticmethod
    def forward(ctx, x, index, step, where):
        ctx.index, ctx.step, ctx.where = index, step, where
        if alike((x.placements[index],), (step.dst,)):
            return x.detach()
        return x.redistribute(placements=_with(tuple(x.placements), index, step.dst))

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        index, step = ctx.index, ctx.step
        grad = _check(grad, _with(tuple(grad.placements), index, step.grad_dst), ctx.where)
        target = _with(tuple(grad.placements), index, step.grad_src)
        return grad.redistribute(placements=target), None, None, None


class _Wrap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mesh, kept, grads, where):
        ctx.grads, ctx.where = grads, where
        return DTensor.from_local(x.detach(), mesh, kept, run_check=False)

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        return _check(grad, ctx.grads, ctx.where).to_local(), None, None, None, None


class _Unwrap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, grads, where):
        ctx.mesh, ctx.grads = x.device_mesh, grads
        if any(p.is_partial() and type(p) is not Partial for p in x.placements):
            raise LoweringError([f"{where}: the terms of a masked sum have no meaning by themselves"])
        return x.to_local()

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        return DTensor.from_local(grad.contiguous(), ctx.mesh, ctx.grads, run_check=False), None, None
