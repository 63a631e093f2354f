"""Attention to keys that pass by: what `ring_attention` computes and sends.

Shapes: B sequences, T queries or S keys of one part, N query heads, K key heads, G = N / K query
heads for each key head, H numbers a head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.attention.flex_attention import create_mask

from meshlang.lowering.sequence import tokens_of
from meshlang.strategy import Plan, StrategyUse

from .context import Looks, looking
from .ring_ops import Ring
from .softmax_ops import finite, widened

#: Queries and keys that are computed on at once: scores take B * N * TILE * TILE elements.
TILE = 1024

#: (owner of the keys, which of the queries, which of its keys) -> booleans (B, 1, queries, keys).
MaskOf = Callable[[int, slice, slice], torch.Tensor]

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def install(plan: Plan, use: StrategyUse, model: nn.Module, mesh: DeviceMesh | None) -> None:
    """Each module that looks over the whole of the cut sequence computes on a ring instead."""
    if mesh is None:
        return
    balance = str(dict(use.options)["balance"])
    for looks in looking(plan, use.axis):
        module = model.get_submodule(looks.module)
        module.forward = RingAttend(
            ring=Ring.of(mesh.get_group()), balance=balance, arguments=_arguments(module), ports=_ports(looks)
        )


def _arguments(module: nn.Module) -> tuple[str, ...]:
    return tuple(signature(type(module).forward).parameters)[1:]


def _ports(looks: Looks) -> tuple[str, str, str]:
    """Arguments of queries, keys and values."""
    queries, keys, values = (edge.port.removeprefix("input.") for edge in (*looks.others, *looks.whole))
    return queries, keys, values


@dataclass(frozen=True, kw_only=True)
class RingAttend:
    """In place of the forward of an attention module of torchtitan's: the same arguments, the same result.

    The mask is the whole sequence's, told in positions of the whole sequence: each rank knows
    which of them its own tokens have, and those of every other rank.
    """

    ring: Ring
    balance: str
    arguments: tuple[str, ...]
    ports: tuple[str, str, str]

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Attention of this rank's queries (B, T, N, H) to the keys of all ranks."""
        given = dict(zip(self.arguments, args, strict=False)) | kwargs
        q, k, v = (given.pop(port).transpose(1, 2) for port in self.ports)
        mask, scale = given.pop("attention_masks", None), given.pop("scale", None)
        refuse(given, mask)
        seq = q.size(2) * self.ring.size
        batch, device = q.size(0), q.device  # a mask that held q would keep it, where the layer is to run again
        mine = self.tokens(self.ring.rank, seq, device)
        scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale

        def mask_of(owner: int, rows: slice, columns: slice) -> torch.Tensor:
            return part_of_mask(mask.mask_mod, batch, mine[rows], self.tokens(owner, seq, device)[columns])

        out: torch.Tensor = _Ring.apply(q, k, v, self.ring, mask_of, scale)
        return out.transpose(1, 2)

    def tokens(self, rank: int, seq: int, device: torch.device) -> torch.Tensor:
        """Where the tokens of one rank stand in the whole sequence."""
        return tokens_of(rank, self.ring.size, seq, self.balance, device)


def refuse(others: dict[str, Any], mask: Any) -> None:
    """What the ring has no word for is an error, and never left out."""
    if not hasattr(mask, "mask_mod"):
        raise NotImplementedError(f"ring attention needs a block mask, and gets {type(mask).__name__}")
    if mask.shape[1] != 1:
        raise NotImplementedError("ring attention has one mask for all heads")
    asked = [name for name in ("score_mod", "out_transform") if others.get(name) is not None]
    if asked:
        raise NotImplementedError(f"ring attention has no {' and no '.join(asked)}")


def part_of_mask(
    mask_mod: Callable[..., torch.Tensor], batch: int, rows: torch.Tensor, columns: torch.Tensor
) -> torch.Tensor:
    """Which of the keys at `columns` the queries at `rows` may see, (B, 1, rows, columns)."""

    def part(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return mask_mod(b, h, rows[q], columns[k])

    return create_mask(part, batch, 1, len(rows), len(columns), device=rows.device)


class _Ring(torch.autograd.Function):
    """q (B, N, T, H), k and v (B, K, T, H) of this rank -> the output of its queries, as q."""

    @staticmethod
    def forward(ctx, q, k, v, ring, mask_of, scale):
        out, lse = stream(q, k, v, ring, mask_of, scale)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.ring, ctx.mask_of, ctx.scale = ring, mask_of, scale
        return out

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, out, lse = ctx.saved_tensors
        grads = stream_back(q, k, v, out, lse, grad, ctx.ring, ctx.mask_of, ctx.scale)
        return *grads, None, None, None


def stream(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ring: Ring, mask_of: MaskOf, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output in q's type, and the log of each query's sum of exponentials, (B, N, T).

    Sends P - 1 messages, each the packed keys and values of one rank, while the part that came
    before is computed on.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    out = torch.zeros((*q.shape[:3], v.size(-1)), dtype=wide, device=q.device)
    lse = torch.full(q.shape[:3], -math.inf, dtype=wide, device=q.device)

    def see(owner: int, block: torch.Tensor) -> None:
        merge(tiles(q, *unpack(block, k, v), partial(mask_of, owner), scale), out, lse)

    ring.around(pack(k, v), see)
    return out.to(q.dtype), lse


def stream_back(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    grad: torch.Tensor,
    ring: Ring,
    mask_of: MaskOf,
    scale: float,
) -> Tensors:
    """Gradients of q, k and v: keys and values pass by as in the forward, and the sums of their gradients with them."""
    delta = (widened(grad) * widened(out)).sum(-1)
    dq = torch.zeros(q.shape, dtype=delta.dtype, device=q.device)

    def terms(owner: int, block: torch.Tensor) -> torch.Tensor:
        sums = torch.zeros(block.shape, dtype=delta.dtype, device=q.device)
        parts = tiles(q, *unpack(block, k, v), partial(mask_of, owner), scale)
        add_terms(parts, (grad, lse, delta), (dq, *unpack(sums, k, v)))
        return sums

    own = ring.around_back(pack(k, v), terms)
    dk, dv = unpack(own, k, v)
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


def pack(k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Keys and values as one message."""
    return torch.cat((k.reshape(-1), v.reshape(-1)))


def unpack(block: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of a message as keys and values of the shapes of `k` and `v`."""
    keys, values = block.split((k.numel(), v.numel()))
    return keys.view(k.shape), values.view(v.shape)


def tiles(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask_of: Callable[[slice, slice], torch.Tensor], scale: float
) -> Iterator[Tile]:
    """Parts of at most TILE queries and TILE keys, but those in which no query sees a key."""
    for row in range(0, q.size(2), TILE):
        for column in range(0, k.size(2), TILE):
            rows, columns = slice(row, min(q.size(2), row + TILE)), slice(column, min(k.size(2), column + TILE))
            mask = mask_of(rows, columns)
            if mask.any():
                yield Tile(
                    rows=rows,
                    columns=columns,
                    q=q[:, :, rows],
                    k=k[:, :, columns],
                    v=v[:, :, columns],
                    mask=mask,
                    scale=scale,
                )


def merge(parts: Iterable[Tile], out: torch.Tensor, lse: torch.Tensor) -> None:
    """Add the attention to further keys, in place: both sides are softmaxes over their own keys."""
    for tile in parts:
        part, part_lse = tile.attend()
        rows_out, rows_lse = out[:, :, tile.rows], lse[:, :, tile.rows]
        total = torch.logaddexp(rows_lse, part_lse)
        shift = finite(total)
        rows_out *= torch.exp(rows_lse - shift).unsqueeze(-1)
        rows_out += part * torch.exp(part_lse - shift).unsqueeze(-1)
        rows_lse.copy_(total)


def add_terms(parts: Iterable[Tile], of_queries: Tensors, sums: Tensors) -> None:
    """Add each tile's terms to the gradients.

    Args:
        of_queries: the output's gradient, the log-sum-exp, and `delta` of `Tile.backward`.
        sums: the gradients of q, k and v, changed in place.
    """
    dq, dk, dv = sums
    for tile in parts:
        terms = tile.backward(*(x[:, :, tile.rows] for x in of_queries))
        places = (dq[:, :, tile.rows], dk[:, :, tile.columns], dv[:, :, tile.columns])
        for place, term in zip(places, terms, strict=True):
            place += term


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Some queries (B, N, T, H) and some keys and values (B, K, S, H), with who may see whom (B, 1, T, S).

    rows and columns: where these stand among the queries and the keys.
    """

    rows: slice
    columns: slice
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    mask: torch.Tensor
    scale: float

    def grouped(self, x: torch.Tensor) -> torch.Tensor:
        """(B, N, ...) -> (B, K, G, ...)."""
        return x.unflatten(1, (self.k.size(1), -1))

    def scores(self) -> torch.Tensor:
        """Scaled and masked, (B, K, G, T, S)."""
        scores = self.grouped(widened(self.q)) @ widened(self.k).unsqueeze(2).transpose(-1, -2)
        return (scores * self.scale).masked_fill_(~self.mask.unsqueeze(2), -math.inf)

    def attend(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Output (B, N, T, H) and log-sum-exp (B, N, T) over these keys, in float32 or wider."""
        scores = self.scores()
        lse = scores.logsumexp(-1)
        weights = torch.exp(scores - finite(lse).unsqueeze(-1))
        out = weights @ widened(self.v).unsqueeze(2)
        return out.flatten(1, 2), lse.flatten(1, 2)

    def backward(self, grad: torch.Tensor, lse: torch.Tensor, delta: torch.Tensor) -> Tensors:
        """This tile's terms of the gradients of q, k and v, from the log-sum-exp over all keys.

        delta: for each query the product of its output and the output's gradient (FlashAttention,
        arXiv 2205.14135, appendix B.4).
        """
        weights = torch.exp(self.scores() - finite(self.grouped(lse)).unsqueeze(-1))
        grad = self.grouped(widened(grad))
        dv = (weights.transpose(-1, -2) @ grad).sum(2)
        slopes = grad @ widened(self.v).unsqueeze(2).transpose(-1, -2) - self.grouped(delta).unsqueeze(-1)
        slopes = slopes * weights * self.scale
        dq = (slopes @ widened(self.k).unsqueeze(2)).flatten(1, 2)
        dk = (slopes.transpose(-1, -2) @ self.grouped(widened(self.q))).sum(2)
        return dq, dk, dv
