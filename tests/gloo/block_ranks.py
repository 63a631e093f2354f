"""Attention over two streams by itself, on ranks: each rank's rows against dense masked softmax of all of them."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from meshlang_strategies.block_layout import Streams, block_streams, combined_streams
from meshlang_strategies.block_rows_ops import Rows
from meshlang_strategies.csbp_ops import BlockAttend, exchange_of
from torch.distributed.device_mesh import init_device_mesh
from torch.utils._python_dispatch import TorchDispatchMode

from meshlang.strategy import StrategyUse
from meshlang.testing.collectives import Counts, count_collectives

SEQUENCES, HEADS, KV_HEADS, HEAD_DIM = 2, 4, 2, 8
NAMES = ("q_BLNH", "k_BLNH", "v_BLNH")


@dataclass(frozen=True, kw_only=True)
class Exchanged:
    """One way to share keys, on as many ranks as run it."""

    blocks: int
    block_size: int = 4
    context: int | None = None
    transport: str = "gather"
    window: int | None = None
    views: int = 1
    combined: bool = False
    documents: bool = False
    pruned: bool = False
    kernel: str = "auto"
    dtype: str = "float64"

    @property
    def tokens(self) -> int:
        """Of a sequence."""
        return self.blocks * self.block_size

    def streams(self, ranks: int) -> Streams:
        """Where the tokens are."""
        if self.combined:
            return combined_streams(self.tokens, self.block_size, ranks)
        context = self.context or ranks
        return block_streams(self.tokens, self.block_size, ranks, context, self.window, self.views)

    def use(self) -> StrategyUse:
        """As a plan says it."""
        csbp = () if self.combined else (("transport", self.transport), ("window", self.window))
        return StrategyUse(name="csbp", axis="block", options=csbp, ops="meshlang_strategies.csbp_ops")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Errors relative to the largest value, and what was sent."""

    errors: dict[str, float]
    counts: Counts
    leaked: int


def positions(case: Exchanged) -> torch.Tensor:
    """Of clean tokens; the second sequence has three documents where there are any."""
    index = torch.arange(case.tokens).repeat(SEQUENCES, 1)
    for start in (case.tokens // 3 + 1, case.tokens // 2) if case.documents else ():
        index[1, start:] = torch.arange(case.tokens - start)
    return index


def sees(case: Exchanged) -> torch.Tensor:
    """(B, rows, rows) of all rows [views ; clean], by the table of the objective, pair by pair."""
    size = case.tokens
    token = torch.arange(size).repeat(case.views + 1)
    stream = torch.arange(case.views + 1).repeat_interleave(size)
    clean = stream == case.views
    document = (positions(case) == 0).cumsum(1).repeat(1, case.views + 1)
    q, k = token[:, None], token[None, :]
    qb, kb = q // case.block_size, k // case.block_size
    same = stream[:, None] == stream[None, :]
    corrupted_q, clean_k = ~clean[:, None], clean[None, :]
    allowed = (corrupted_q & same & (qb == kb)) | (corrupted_q & clean_k & (qb > kb))
    allowed = allowed | (clean[:, None] & clean_k & (qb >= kb))
    if case.window is not None:
        allowed = allowed & (q - k < case.window)
    return allowed & (document[:, :, None] == document[:, None, :])


def inputs(case: Exchanged) -> list[torch.Tensor]:
    """q, k, v and the output's gradient of all rows, (B, rows, heads, H)."""
    generator = torch.Generator().manual_seed(3)
    rows = (case.views + 1) * case.tokens
    heads = (HEADS, KV_HEADS, KV_HEADS, HEADS)
    made = [torch.randn(SEQUENCES, rows, n, HEAD_DIM, generator=generator, dtype=torch.float64) for n in heads]
    if case.pruned:
        made[3][:, case.views * case.tokens :] = 0
    return [x.to(getattr(torch, case.dtype)) for x in made]


def reference(case: Exchanged) -> list[torch.Tensor]:
    """Output and gradients of q, k and v, in float64."""
    q, k, v, grad = (x.double() for x in inputs(case))
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    keys, values = (x.repeat_interleave(HEADS // KV_HEADS, 2) for x in (k, v))
    scores = torch.einsum("bqnh,bknh->bnqk", q, keys) * HEAD_DIM**-0.5
    weights = scores.masked_fill(~sees(case)[:, None], -torch.inf).softmax(-1)
    out = torch.einsum("bnqk,bknh->bqnh", weights, values)
    return [out.detach(), *torch.autograd.grad(out, (q, k, v), grad)]


#: Arguments that a collective only writes to; what they hold before is chance.
WRITTEN = ("output_tensor", "output_tensors", "output")


class Sent(TorchDispatchMode):
    """Every number that goes into a collective."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note what is sent, then run the operator."""
        if func.namespace in ("c10d", "_c10d_functional") and "recv" not in func.name():
            names = [argument.name for argument in func._schema.arguments]
            read = [x for name, x in zip(names, args, strict=False) if name not in WRITTEN]
            self.values += [x.detach().clone() for x in _flat(read)]
        return func(*args, **(kwargs or {}))


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [x for each in value for x in _flat(each)] if isinstance(value, (list, tuple)) else []


def rank_compare(case: Exchanged) -> Compared:
    """This rank's output and gradients, those of clean keys summed over rings, against the reference."""
    size, rank = dist.get_world_size(), dist.get_rank()
    streams = case.streams(size)
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("block",)) if size > 1 else None
    rows = Rows.of(streams, rank, positions(case), views=case.views)
    index = torch.cat([rows.corrupted_places(), rows.clean + case.views * case.tokens])
    queries = index[: rows.count] if case.pruned else index
    exchange, both = exchange_of(streams, case.use(), mesh)
    attend = BlockAttend(exchange=exchange, corrupted=both, kernel=case.kernel, arguments=NAMES, ports=NAMES)
    whole = inputs(case)
    q, k, v = (whole[i][:, chosen].requires_grad_() for i, chosen in ((0, queries), (1, index), (2, index)))
    grad = whole[3][:, queries].clone()
    if rank >= streams.context:  # each ring computes the clean rows; their outputs count once here
        grad[:, rows.count :] = 0
    ranks = {tuple(range(size)): "block", tuple(streams.ring_of(rank)): "block"}
    with count_collectives(ranks) as issued, Sent() as sent:
        out = attend(q, k, v, attention_masks=rows)
        out.backward(grad)
    found = [out.detach(), q.grad, k.grad, v.grad]
    errors = {}
    for name, x, want in zip(("out", "q", "k", "v"), found, reference(case), strict=True):
        assert x is not None
        gathered = _whole(x, queries if name in ("out", "q") else index, want.shape, streams, case)
        chosen = slice(0, case.views * case.tokens) if case.pruned and name in ("out", "q") else slice(None)
        errors[name] = float((gathered - want)[:, chosen].abs().max() / want.abs().max())
    corrupted = torch.cat([x.detach()[:, : rows.count].flatten() for x in (k, v)])
    leaked = int(torch.isin(torch.cat([x.flatten() for x in sent.values]), corrupted).sum()) if sent.values else 0
    return Compared(errors=errors, counts=issued.counts(), leaked=leaked)


def _whole(x: torch.Tensor, index: torch.Tensor, shape: torch.Size, streams: Streams, case: Exchanged) -> torch.Tensor:
    """All ranks' rows as one tensor; rows that every ring has are summed, but outputs are taken from the first."""
    rank = dist.get_rank()
    gathered = torch.zeros(shape, dtype=torch.float64)
    x = x.double()
    if x.shape[1] == len(index) and x.shape[2] == HEADS and rank >= streams.context:
        clean = index >= case.views * case.tokens
        x = x.masked_fill(clean[None, :, None, None], 0)
    gathered[:, index] = x
    if dist.get_world_size() > 1:
        dist.all_reduce(gathered)
    return gathered
