"""What `csbp` and `combined_context` compute: rows by their owners, and attention over two streams.

Shapes: B sequences, L tokens of a sequence, V corrupted views, R rows of this rank (its corrupted
ones view by view, then its clean ones), N query heads, K key heads, H numbers a head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from meshlang.lowering.errors import LoweringError
from meshlang.plan.blocks import Runs
from meshlang.strategy import Blocks, Plan, StrategyUse

from .block_exchange_ops import Alone, Exchange, Gather, Neighbours, Stream, ring_group
from .block_kernels_ops import Kernel, kernel_for, merge
from .block_layout import Streams, length
from .block_plan import attending
from .block_rows_ops import Batch, Rows, viewed
from .ring_ops import Ring
from .softmax_ops import finite

#: The batch's masks are made here: those of whole sequences need not be.
MAKES_MASKS = True


def streams_of(plan: Plan, use: StrategyUse) -> Streams:
    """Where the tokens are, as the plan says."""
    blocks = blocks_of(plan)
    window = dict(use.options).get("window")
    assert window is None or isinstance(window, int)
    size = blocks.block_size
    return Streams(
        tokens=blocks.sequence,
        block_size=size,
        context=blocks.context,
        window=window,
        corrupted=tuple(tuple((a * size, b * size) for a, b in runs) for runs in blocks.owners),
        clean=blocks.clean,
    )


def blocks_of(plan: Plan) -> Blocks:
    """The plan's account of blocks; it has one when the strategy is in it."""
    assert plan.block is not None
    return plan.block


def prepare_batch(plan: Plan, use: StrategyUse, batch: Batch, mesh: DeviceMesh | None) -> Batch:
    """This rank's rows of whole sequences: corrupted by blocks, clean by runs; and what each row sees.

    "input", "labels" and "positions" have V views a sequence, (B, V L), or one, (B V, L), the views
    of a sequence in neighbouring rows; "clean" and "clean_positions" are (B, L), or (B V, L).
    """
    blocks, streams = blocks_of(plan), streams_of(plan, use)
    if batch["clean"].size(1) != blocks.sequence:
        message = f"sequences have {batch['clean'].size(1)} tokens here, in the plan {blocks.sequence}"
        raise LoweringError([message])
    batch = viewed(batch, blocks.views, shared=blocks.shared)
    rank = 0 if mesh is None else mesh.get_local_rank()
    rows = Rows.of(streams, rank, batch["clean_positions"], views=batch["input"].size(1) // blocks.sequence)
    corrupted = rows.corrupted_places()
    taken = {
        name: value.index_select(1, rows.clean if name.startswith("clean") else corrupted)
        for name, value in batch.items()
        if isinstance(value, torch.Tensor)
    }
    return batch | taken | {"attention_masks": rows}


def install(plan: Plan, use: StrategyUse, model: nn.Module, mesh: DeviceMesh | None) -> None:
    """Each attention over both streams computes on this rank's rows instead.

    Raises:
        LoweringError: the model's blocks are of another size, or it cannot leave out what it is to.
    """
    options = dict(use.options)
    _same_blocks(blocks_of(plan).block_size, model)
    if options.get("prune_last"):
        if not hasattr(model, "prune_last"):
            raise LoweringError([f"{type(model).__name__} has no `prune_last`: its last layer keeps its clean rows"])
        setattr(model, "prune_last", True)  # noqa: B010  (a plain attribute of some models)
    exchange, others = exchange_of(streams_of(plan, use), use, mesh)
    for looks in attending(plan, use.axis):
        module = model.get_submodule(looks.module)
        ports = tuple(edge.port.removeprefix("input.") for edge in (*looks.others, *looks.whole))
        module.forward = BlockAttend(
            exchange=exchange,
            corrupted=others,
            kernel=str(options.get("kernel", "auto")),
            arguments=tuple(signature(type(module).forward).parameters)[1:],
            ports=ports,
        )


def _same_blocks(size: int, model: nn.Module) -> None:
    theirs = getattr(getattr(model, "config", None), "block_size", size)
    if theirs != size:
        raise LoweringError([f"blocks have {size} tokens in the plan, and {theirs} in the model"])


def exchange_of(streams: Streams, use: StrategyUse, mesh: DeviceMesh | None) -> tuple[Exchange, Gather | None]:
    """How clean keys are shared, and corrupted ones where the strategy shares them too."""
    options = dict(use.options)
    rank = 0 if mesh is None else mesh.get_local_rank()
    ring = streams.ring_of(rank)
    if mesh is None or len(ring) == 1:
        return Alone(runs=streams.clean[rank]), None
    group = ring_group(mesh.get_group(), ring)
    clean = tuple(streams.clean[place] for place in ring)
    if "transport" not in options:  # the combined sequence: both streams
        return Gather(group=group, clean=clean), Gather(group=group, clean=streams.corrupted)
    if streams.window is not None:
        moves = streams.moves()
        return Neighbours(
            group=group,
            clean=streams.clean[rank],
            needed=streams.needed(rank),
            takes={source - ring[0]: runs for (source, to), runs in moves.items() if to == rank},
            gives={to - ring[0]: runs for (source, to), runs in moves.items() if source == rank},
        ), None
    if options.get("transport") == "ring":
        return Stream(ring=Ring.of(group), clean=clean), None
    return Gather(group=group, clean=clean), None


@dataclass(frozen=True, kw_only=True)
class BlockAttend:
    """In place of the forward of an attention module of torchtitan's: the same arguments, the same result."""

    exchange: Exchange
    corrupted: Gather | None
    kernel: str
    arguments: tuple[str, ...]
    ports: tuple[str, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Attention of this rank's queries (B, R, N, H), or of its corrupted ones only, to both streams."""
        given = dict(zip(self.arguments, args, strict=False)) | kwargs
        q, k, v = (given.pop(port).transpose(1, 2) for port in self.ports)
        rows = given.pop("attention_masks", None)
        refuse(given, rows, q)
        work = Work(
            rows=rows, exchange=self.exchange, corrupted=self.corrupted, kernel=kernel_for(self.kernel, q.device)
        )
        out: torch.Tensor = _Attend.apply(q, k, v, work)
        return out.transpose(1, 2)


def refuse(others: dict[str, Any], rows: Any, q: torch.Tensor) -> None:
    """What has no word here is an error, and never left out."""
    if not isinstance(rows, Rows):
        raise NotImplementedError(f"attention over blocks needs the rows of its rank, and gets {type(rows).__name__}")
    asked = [name for name in ("score_mod", "out_transform") if others.get(name) is not None]
    scale = others.get("scale")
    if scale is not None and not math.isclose(scale, q.size(-1) ** -0.5):
        asked.append("scale of another size")
    if asked:
        raise NotImplementedError(f"attention over blocks has no {' and no '.join(asked)}")


@dataclass(frozen=True, kw_only=True)
class Work:
    """One attention of one rank."""

    rows: Rows
    exchange: Exchange
    corrupted: Gather | None
    kernel: Kernel

    def local(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Output and log-sum-exp of corrupted rows over their own blocks."""
        if not self.kernel.batched:
            return self.kernel.attend(q, k, v, self.rows.in_rows())
        q_k, k_k, v_k = (apart(x, self.rows.block_size) for x in (q, k, v))
        out, lse = self.kernel.attend(q_k, k_k, v_k, self.rows.in_blocks(q.size(0)))
        return together(out, q.size(0)), together(lse, q.size(0))

    def local_terms(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, whole: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, ...]:
        """The same pairs' terms of the gradients of q, k and v."""
        out, lse, grad = whole
        if not self.kernel.batched:
            return self.kernel.terms(q, k, v, self.rows.in_rows(), (out, lse, grad))
        size, batch = self.rows.block_size, q.size(0)
        q_k, k_k, v_k, out, lse, grad = (apart(x, size) for x in (q, k, v, *whole))
        terms = self.kernel.terms(q_k, k_k, v_k, self.rows.in_blocks(batch), (out, lse, grad))
        return tuple(together(x, batch) for x in terms)


def apart(x: torch.Tensor, size: int) -> torch.Tensor:
    """(B, N, blocks of K rows, ...) -> (B blocks, N, K, ...)."""
    return x.unflatten(2, (-1, size)).transpose(1, 2).flatten(0, 1)


def together(x: torch.Tensor, batch: int) -> torch.Tensor:
    """The way back of `apart`."""
    return x.unflatten(0, (batch, -1)).transpose(1, 2).flatten(2, 3)


class _Attend(torch.autograd.Function):
    """q (B, N, R or fewer, H), k and v (B, K, R, H) -> the output, as q."""

    @staticmethod
    def forward(ctx, q, k, v, work):
        count = work.rows.count
        wide = torch.promote_types(q.dtype, torch.float32)
        out = torch.zeros(q.shape, dtype=wide, device=q.device)
        lse = torch.full(q.shape[:3], -math.inf, dtype=wide, device=q.device)
        corrupted = tuple(x[:, :, :count] for x in (q, k, v))

        def local() -> None:
            part, part_lse = work.local(*corrupted)
            out[:, :, :count], lse[:, :, :count] = part, part_lse

        def use(keys: torch.Tensor, runs: Runs) -> None:
            seen = work.rows.in_clean(runs).first(q.size(2))
            merge(out, lse, *work.kernel.attend(q, keys[0], keys[1], seen))

        sent = None if work.corrupted is None else work.corrupted.start(torch.stack(corrupted[1:]))
        kept = work.exchange.forward(torch.stack([k[:, :, count:], v[:, :, count:]]), local, use)
        if sent is not None:
            sent[1].wait()
        ctx.save_for_backward(q, k, v, out.to(q.dtype), lse, *([] if kept is None else [kept]))
        ctx.work = work
        return out.to(q.dtype)

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, out, lse, *kept = ctx.saved_tensors
        work, count = ctx.work, ctx.work.rows.count
        lse = finite(lse)
        wide = torch.promote_types(q.dtype, torch.float32)
        dq = torch.zeros(q.shape, dtype=wide, device=q.device)
        own: list[torch.Tensor] = []

        def local() -> None:
            whole = tuple(x[:, :, :count] for x in (out, lse, grad))
            term, *others = work.local_terms(*(x[:, :, :count] for x in (q, k, v)), whole)
            dq[:, :, :count] += term
            own.extend(others)

        def use(keys: torch.Tensor, runs: Runs) -> torch.Tensor:
            seen = work.rows.in_clean(runs).first(q.size(2))
            term, dk, dv = work.kernel.terms(q, keys[0], keys[1], seen, (out, lse, grad))
            dq.add_(term)
            return torch.stack([dk, dv])

        clean = torch.stack([k[:, :, count:], v[:, :, count:]])
        shared = work.exchange.backward(clean, kept[0] if kept else None, local, use)
        corrupted = torch.stack(own)
        if work.corrupted is not None:
            corrupted = _summed(work.corrupted, corrupted.to(k.dtype), work.rows)
        dk, dv = (torch.cat([corrupted[i].to(k.dtype), shared[i].to(k.dtype)], dim=2) for i in (0, 1))
        return dq.to(q.dtype), dk, dv, None


def _summed(gather: Gather, mine: torch.Tensor, rows: Rows) -> torch.Tensor:
    """The gradients of this rank's corrupted keys, summed over all ranks that had them."""
    assert rows.views == 1
    index = dist.get_rank(gather.group)
    whole = mine.new_zeros((*mine.shape[:-2], rows.tokens, mine.size(-1)))
    at = 0
    for start, stop in gather.clean[index]:
        whole[..., start:stop, :] = mine[..., at : at + stop - start, :]
        at += stop - start
    summed, work = gather.start_sum(whole)
    work.wait()
    return summed[..., : length(gather.clean[index]), :]
