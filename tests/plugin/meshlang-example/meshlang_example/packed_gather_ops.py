"""What `packed_gather` computes and sends.

Shapes: P ranks of the axis, B sequences, T tokens of one rank, L = P * T of all, N key heads, H
numbers a head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.attention.flex_attention import BlockMask

from meshlang.lowering.sequence import cut_rows, cut_tokens
from meshlang.strategy import Plan, StrategyUse

from .packed_gather import looked_over


def prepare_batch(plan: Plan, use: StrategyUse, batch: dict[str, Any], mesh: DeviceMesh | None) -> dict[str, Any]:
    """A rank's tokens in their order, and the rows of the mask that its queries are."""
    if mesh is None:
        return batch
    rank, size = mesh.get_local_rank(), mesh.size()

    def mine(value: Any) -> Any:
        if isinstance(value, BlockMask):
            return cut_rows(value, rank, size, "none")
        return cut_tokens(value, rank, size, "none") if isinstance(value, torch.Tensor) else value

    return {name: mine(value) for name, value in batch.items()}


def install(plan: Plan, use: StrategyUse, model: nn.Module, mesh: DeviceMesh | None) -> None:
    """Each module that looks over the cut sequence gathers it first, and then computes as it always does."""
    if mesh is None:
        return
    for name, edges in looked_over(plan, use.axis).items():
        module = model.get_submodule(name)
        module.forward = Gathering(
            inner=module.forward,
            group=mesh.get_group(),
            arguments=tuple(signature(type(module).forward).parameters)[1:],
            ports=tuple(edge.port.removeprefix("input.") for edge in edges),
        )


@dataclass(frozen=True, kw_only=True)
class Gathering:
    """In place of a forward: the arguments named by `ports` are gathered over the group."""

    inner: Callable[..., torch.Tensor]
    group: dist.ProcessGroup
    arguments: tuple[str, ...]
    ports: tuple[str, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """What the module gives for its own queries and the keys of all ranks."""
        given = dict(zip(self.arguments, args, strict=False)) | kwargs
        whole = PackedGather.apply(torch.stack([given[port] for port in self.ports]), self.group)
        return self.inner(**given | dict(zip(self.ports, whole.unbind(), strict=True)))


class PackedGather(torch.autograd.Function):
    """(2, B, T, N, H) -> (2, B, L, N, H); the adjoint sums over the ranks and cuts."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        """One all-gather."""
        ctx.group = group
        got = part.new_empty(group.size() * part.shape[0], *part.shape[1:])
        dist.all_gather_into_tensor(got, part.contiguous(), group=group)
        return got.unflatten(0, (group.size(), -1)).movedim(0, 2).flatten(2, 3)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One reduce-scatter."""
        parts = grad.unflatten(2, (ctx.group.size(), -1)).movedim(2, 0).contiguous()
        mine = torch.empty_like(parts[0])
        dist.reduce_scatter_tensor(mine, parts.flatten(0, 1), group=ctx.group)
        return mine, None
