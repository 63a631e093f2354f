"""Moves of a plain local tensor over one process group, with the gradient's move as declared.

Forward and backward are the same function: a value goes from `src` to `dst`, its gradient
from `grad_dst` back to `grad_src`. Over a Shard each rank holds an equal part.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

from .layout import Move


def move_local(x: torch.Tensor, group: dist.ProcessGroup, move: Move) -> torch.Tensor:
    """`x` as `move.dst` says; its gradient takes the way back."""
    moved: torch.Tensor = _Moved.apply(x, group, move)
    return moved


class _Moved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, move):
        ctx.group, ctx.move = group, move
        return redistribute_local(x, group, move.src, move.dst)

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        return redistribute_local(grad, ctx.group, ctx.move.grad_dst, ctx.move.grad_src), None, None


def redistribute_local(x: torch.Tensor, group: dist.ProcessGroup, src: Placement, dst: Placement) -> torch.Tensor:
    """The local tensor under `dst` of a value whose local tensor under `src` is `x`; at most one collective."""
    if src == dst:
        return x.view_as(x)
    if isinstance(src, Shard) and isinstance(dst, Replicate):
        return _wait(functional.all_gather_tensor(x.contiguous(), src.dim, group))
    if isinstance(src, Shard) and isinstance(dst, Shard):
        return _exchange(x, group, src.dim, dst.dim)
    if isinstance(src, Partial) and isinstance(dst, Replicate):
        return _wait(functional.all_reduce(x.contiguous(), "sum", group))
    if isinstance(src, Partial) and isinstance(dst, Shard):
        return _wait(functional.reduce_scatter_tensor(x.contiguous(), "sum", dst.dim, group))
    if isinstance(src, Replicate) and isinstance(dst, Shard):
        return x.chunk(group.size(), dst.dim)[group.rank()].contiguous()
    if isinstance(src, Replicate):
        return x.clone() if group.rank() == 0 else torch.zeros_like(x)
    assert isinstance(src, Shard)
    return _amid_zeros(x, group, src.dim)


def _wait(x: torch.Tensor) -> torch.Tensor:
    return x.wait() if isinstance(x, functional.AsyncCollectiveTensor) else x


def _exchange(x: torch.Tensor, group: dist.ProcessGroup, src_dim: int, dst_dim: int) -> torch.Tensor:
    """Cut along `dst_dim` instead of `src_dim`, by one all-to-all."""
    size = group.size()
    sent = torch.stack(x.chunk(size, dst_dim)).contiguous()
    got = _wait(functional.all_to_all_single(sent, None, None, group))
    return torch.cat(got.unbind(0), dim=src_dim)


def _amid_zeros(x: torch.Tensor, group: dist.ProcessGroup, dim: int) -> torch.Tensor:
    """This rank's part where it belongs in the whole tensor, zeros elsewhere: a term of a sum."""
    parts = [torch.zeros_like(x)] * group.size()
    parts[group.rank()] = x
    return torch.cat(parts, dim=dim)
