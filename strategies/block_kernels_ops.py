"""Attention of queries that each see one run of the keys, with its log-sum-exp, in three ways.

Every mask of block diffusion is such a run: the own block, the clean tokens before it, a document,
a window. Keys may be a part of all keys: results of parts are merged by their log-sum-exp, and a
part's gradients come from the output and the log-sum-exp over all of them (FlashAttention, arXiv
2205.14135, appendix B.4).

Shapes: B sequences, T queries, S keys, N query heads, K key heads, H numbers a head. Runs are
(B or 1, T): the first key that a query sees and the one past the last, in 0 ... S.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from .softmax_ops import finite, widened

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

#: Queries that are computed on at once by `Flash`.
TILE = 256

#: Masks that are kept for a step; documents make many, which are made again instead.
MASKS = 64


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Which keys each query sees.

    Attributes:
        low, high: the run of each query.
        cuts: queries at which a run of neighbouring tokens begins; tiles do not cross them.
        memo: what kernels have made of it, for all layers of a step.
    """

    low: torch.Tensor
    high: torch.Tensor
    cuts: tuple[int, ...] = (0,)
    memo: dict[object, Any] = field(default_factory=dict)

    def first(self, queries: int) -> Seen:
        """Of the first so many queries."""
        if queries == self.low.size(1):
            return self
        key = ("first", queries)
        if key not in self.memo:
            cuts = tuple(cut for cut in self.cuts if cut < queries)
            self.memo[key] = Seen(low=self.low[:, :queries], high=self.high[:, :queries], cuts=cuts)
        return self.memo[key]

    def mask(self, rows: slice, columns: slice) -> torch.Tensor:
        """Booleans (B or 1, 1, rows, columns)."""
        keys = torch.arange(columns.start, columns.stop, device=self.low.device)
        low, high = (x[:, None, rows, None] for x in (self.low, self.high))
        return (keys >= low) & (keys < high)


class Kernel(Protocol):
    """How attention is computed. `q` is (B, N, T, H); `k` and `v` are (B, K, S, H)."""

    @property
    def batched(self) -> bool:
        """Whether many short sequences are better than one with a mask."""
        ...

    def attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: Seen
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The output, as q or wider, and the log-sum-exp (B, N, T), -inf for a query that sees no key."""
        ...

    def terms(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: Seen, whole: Tensors) -> Tensors:
        """Terms of the gradients of q, k and v, or wider; `whole` is (output, log-sum-exp, gradient) over all keys."""
        ...


def merge(out: torch.Tensor, lse: torch.Tensor, more: torch.Tensor, more_lse: torch.Tensor) -> None:
    """Add the attention to further keys, in place: both sides are softmaxes over their own keys."""
    total = torch.logaddexp(lse, more_lse.to(lse.dtype))
    shift = finite(total)
    out *= torch.exp(lse - shift).unsqueeze(-1)
    out += more * torch.exp(more_lse - shift).unsqueeze(-1)
    lse.copy_(total)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Plain masked softmax in float32 or wider, with all scores at once."""

    batched: bool = False

    def attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: Seen
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Kernel."""
        scores = self._scores(q, k, seen)
        lse = scores.logsumexp(-1)
        weights = torch.exp(scores - finite(lse).unsqueeze(-1))
        out = weights @ widened(v).unsqueeze(2)
        return out.flatten(1, 2), lse.flatten(1, 2)

    def terms(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: Seen, whole: Tensors) -> Tensors:
        """See Kernel."""
        out, lse, grad = (_grouped(widened(x), k) for x in whole)
        delta = (out * grad).sum(-1, keepdim=True)
        weights = torch.exp(self._scores(q, k, seen) - finite(lse).unsqueeze(-1))
        dv = (weights.transpose(-1, -2) @ grad).sum(2)
        slopes = (grad @ widened(v).unsqueeze(2).transpose(-1, -2) - delta) * weights * q.size(-1) ** -0.5
        dq = (slopes @ widened(k).unsqueeze(2)).flatten(1, 2)
        dk = (slopes.transpose(-1, -2) @ _grouped(widened(q), k)).sum(2)
        return dq, dk, dv

    def _scores(self, q: torch.Tensor, k: torch.Tensor, seen: Seen) -> torch.Tensor:
        """(B, K, G, T, S), G query heads for each key head."""
        scores = _grouped(widened(q), k) @ widened(k).unsqueeze(2).transpose(-1, -2) * q.size(-1) ** -0.5
        mask = seen.mask(slice(0, q.size(2)), slice(0, k.size(2))).unsqueeze(2)
        return scores.masked_fill(~mask, -math.inf)


def _grouped(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """(B, N, ...) -> (B, K, G, ...)."""
    return x.unflatten(1, (k.size(1), -1))


_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_flash_back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


@dataclass(frozen=True, kw_only=True)
class Flash:
    """torch's flash attention for CPUs, tile by tile: keys that no query of a tile sees cost nothing.

    What all queries of a tile see is computed without a mask, and what only some see with one.
    """

    batched: bool = True

    def attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: Seen
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Kernel."""
        wide = torch.promote_types(q.dtype, torch.float32)
        out = torch.zeros(q.shape, dtype=wide, device=q.device)
        lse = torch.full(q.shape[:3], -math.inf, dtype=wide, device=q.device)
        for rows, columns, masked in tiles(seen, k.size(2)):
            groups = q.size(1) // k.size(1)
            mask = _added(seen, rows, columns, q, groups) if masked else None
            part, part_lse = _flash(
                _folded(q[:, :, rows], groups), k[:, :, columns], v[:, :, columns], 0.0, False, attn_mask=mask
            )
            part, part_lse = _unfolded(part, groups), _unfolded(part_lse, groups)
            if masked:
                empty = _empty(seen, rows, columns)
                part = part.masked_fill(empty.unsqueeze(-1), 0.0)
                part_lse = part_lse.masked_fill(empty, -math.inf)
            merge(out[:, :, rows], lse[:, :, rows], part, part_lse)
        return out, lse

    def terms(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: Seen, whole: Tensors) -> Tensors:
        """See Kernel."""
        wide = torch.promote_types(q.dtype, torch.float32)
        dq, dk, dv = (torch.zeros(x.shape, dtype=wide, device=x.device) for x in (q, k, v))
        out, lse, grad = whole[0].to(q.dtype), *whole[1:]
        for rows, columns, masked in tiles(seen, k.size(2)):
            groups = q.size(1) // k.size(1)
            mask = _added(seen, rows, columns, q, groups) if masked else None
            of_queries = (_folded(x[:, :, rows], groups) for x in (grad, q, out, lse))
            grad_t, q_t, out_t, lse_t = of_queries
            k_t, v_t = k[:, :, columns], v[:, :, columns]
            more = _flash_back(grad_t, q_t, k_t, v_t, out_t, lse_t, 0.0, False, attn_mask=mask)
            dq[:, :, rows] += _unfolded(more[0], groups)
            dk[:, :, columns] += more[1]
            dv[:, :, columns] += more[2]
        return dq, dk, dv


def _folded(x: torch.Tensor, groups: int) -> torch.Tensor:
    """(B, N, T, ...) -> (B, K, G T, ...): query heads that share a key head one after another."""
    return x if groups == 1 else x.unflatten(1, (-1, groups)).flatten(2, 3)


def _unfolded(x: torch.Tensor, groups: int) -> torch.Tensor:
    return x if groups == 1 else x.unflatten(2, (groups, -1)).flatten(1, 2)


def _added(seen: Seen, rows: slice, columns: slice, q: torch.Tensor, groups: int) -> torch.Tensor:
    """0 where a query sees a key and -inf elsewhere, for the queries of all heads of a group.

    Tiles along the diagonal have the same mask: one is made for all of them, and for all layers of a step.
    """
    low, high = ((x[:, rows] - columns.start).clamp(0, columns.stop - columns.start) for x in (seen.low, seen.high))
    made = (
        "mask",
        q.dtype,
        groups,
        columns.stop - columns.start,
        tuple(low.flatten().tolist() + high.flatten().tolist()),
    )
    if made not in seen.memo:
        mask = seen.mask(rows, columns)
        added = torch.zeros(mask.shape, dtype=q.dtype, device=mask.device).masked_fill_(~mask, -math.inf)
        added = added.repeat(1, 1, groups, 1)
        if len(seen.memo) >= MASKS:
            return added
        seen.memo[made] = added
    return seen.memo[made]


def _empty(seen: Seen, rows: slice, columns: slice) -> torch.Tensor:
    """(B or 1, 1, T): queries that see none of these keys."""
    low = seen.low[:, None, rows].clamp(min=columns.start)
    return seen.high[:, None, rows].clamp(max=columns.stop) <= low


def tiles(seen: Seen, keys: int) -> list[tuple[slice, slice, bool]]:
    """(queries, keys, whether some of the queries do not see some of the keys)."""
    made = ("tiles", keys)
    if made not in seen.memo:
        seen.memo[made] = list(_tiles(seen, keys))
    return seen.memo[made]


def _tiles(seen: Seen, keys: int) -> Iterator[tuple[slice, slice, bool]]:
    count = seen.low.size(1)
    low = seen.low.clamp(0, keys)
    high = torch.maximum(seen.high.clamp(0, keys), low)
    bounds = [x.tolist() for x in (low.amin(0), low.amax(0), high.amin(0), high.amax(0))]
    for begin, end in zip(seen.cuts, (*seen.cuts[1:], count), strict=True):
        for start in range(begin, end, TILE):
            rows = slice(start, min(end, start + TILE))
            first, last = min(bounds[0][rows]), max(bounds[3][rows])
            inner, outer = max(bounds[1][rows]), min(bounds[2][rows])
            if outer <= inner:
                spans = [(first, last, True)]
            else:
                spans = [(first, inner, True), (inner, outer, False), (outer, last, True)]
            yield from ((rows, slice(a, b), masked) for a, b, masked in spans if a < b)


@cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(flex_attention, dynamic=False)


@cache
def _compiled_mask() -> Callable[..., Any]:
    return torch.compile(create_block_mask)


@dataclass(frozen=True, kw_only=True)
class Flex:
    """FlexAttention, compiled: on a GPU. Tiles in which no query sees a key cost nothing.

    The backward computes a part's forward once more, since the weight of a part is known only at the end.
    """

    batched: bool = False

    def attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: Seen
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Kernel."""
        mask = self._mask(q, k, seen)
        grouped = q.size(1) != k.size(1)
        out, aux = _compiled()(q, k, v, block_mask=mask, enable_gqa=grouped, return_aux=AuxRequest(lse=True))
        return out, aux.lse

    def terms(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: Seen, whole: Tensors) -> Tensors:
        """See Kernel: with w the part's weight, its output has w g, its log-sum-exp w g (part - output)."""
        out, lse, grad = whole
        with torch.enable_grad():
            q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
            part, part_lse = self.attend(q, k, v, seen)
        weight = torch.exp(part_lse.detach() - lse).unsqueeze(-1)
        slope = (grad.float() * (part.detach().float() - out.float())).sum(-1)
        grads = ((grad * weight).to(part.dtype), slope * weight.squeeze(-1))
        dq, dk, dv = torch.autograd.grad((part, part_lse), (q, k, v), grads)
        return dq, dk, dv

    def _mask(self, q: torch.Tensor, k: torch.Tensor, seen: Seen) -> Any:
        made = ("flex", k.size(2))
        if made not in seen.memo:
            low, high = seen.low, seen.high
            batch = low.size(0)

            def sees(b: torch.Tensor, h: torch.Tensor, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
                return (column >= low[b, row]) & (column < high[b, row])

            make = _compiled_mask() if q.is_cuda else create_block_mask
            B = batch if batch > 1 else None
            seen.memo[made] = make(sees, B, None, q.size(2), k.size(2), device=str(q.device))
        return seen.memo[made]


KERNELS: dict[str, Kernel] = {"reference": Reference(), "flash": Flash(), "flex": Flex()}


def kernel_for(word: str, device: torch.device) -> Kernel:
    """The kernel of a name; "auto" is the fast one of a device."""
    return KERNELS[word] if word != "auto" else KERNELS["flex" if device.type == "cuda" else "flash"]
