"""A small decoder of plain torch modules, and one step of it under a plan. Knows no torchtitan.

Shapes: B sequences, L tokens, D hidden, N heads, H head dim.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional as F

from meshlang.lowering.dtensor import lower
from meshlang.lowering.mesh import device_mesh
from meshlang.plan.ir import Plan
from meshlang.testing.collectives import axis_groups, count_collectives
from meshlang.testing.exact import seeded_init
from meshlang.testing.parity import Batch, Report, compare, gradients_of, make_batch, share
from meshlang.testing.titan import misplaced

EMBED, HEADS, KV_HEADS, HEAD_DIM, MLP, VOCAB, POSITIONS, LAYERS = 32, 8, 4, 4, 64, 64, 64, 2


class Attend(nn.Module):
    """Causal attention; a query at position p sees the keys up to p."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """(B, L of q, N, H), from q of these tokens and k, v of all."""
        groups = q.shape[2] // k.shape[2]
        q, k, v = (x.transpose(1, 2) for x in (q, k.repeat_interleave(groups, 2), v.repeat_interleave(groups, 2)))
        seen = positions[:, None, :, None] >= torch.arange(k.shape[2])
        scores = (q @ k.transpose(-1, -2) / HEAD_DIM**0.5).masked_fill(~seen, -torch.inf)
        return (scores.softmax(-1) @ v).transpose(1, 2)


class Attention(nn.Module):
    """Grouped-query attention without rotary positions."""

    def __init__(self) -> None:
        super().__init__()
        self.wq = nn.Linear(EMBED, HEADS * HEAD_DIM, bias=False)
        self.wk = nn.Linear(EMBED, KV_HEADS * HEAD_DIM, bias=False)
        self.wv = nn.Linear(EMBED, KV_HEADS * HEAD_DIM, bias=False)
        self.attend = Attend()
        self.wo = nn.Linear(HEADS * HEAD_DIM, EMBED, bias=False)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """(B, L, D), as `x`."""
        q, k, v = (w(x).unflatten(2, (-1, HEAD_DIM)) for w in (self.wq, self.wk, self.wv))
        return self.wo(self.attend(q, k, v, positions).flatten(2))


class FeedForward(nn.Module):
    """A SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Linear(EMBED, MLP, bias=False)
        self.w2 = nn.Linear(MLP, EMBED, bias=False)
        self.w3 = nn.Linear(EMBED, MLP, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, L, D), as `x`."""
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(EMBED)
        self.attention = Attention()
        self.ffn_norm = nn.RMSNorm(EMBED)
        self.feed_forward = FeedForward()

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """(B, L, D), as `x`."""
        x = x + self.attention(self.attention_norm(x), positions)
        return x + self.feed_forward(self.ffn_norm(x))


class Decoder(nn.Module):
    """Token and position tables, layers, a norm and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, EMBED)
        self.places = nn.Embedding(POSITIONS, EMBED)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.norm = nn.RMSNorm(EMBED)
        self.head = nn.Linear(EMBED, VOCAB, bias=False)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Logits, (B, L, vocabulary)."""
        x = self.tokens(tokens) + self.places(positions)
        for layer in self.layers:
            x = layer(x, positions)
        return self.head(self.norm(x))


def build(plan: Plan) -> Decoder:
    """The decoder with weights that its tensors' names give."""
    model = Decoder().to(getattr(torch, plan.precision.state))
    seeded_init(model)
    return model


def forward_backward(model: nn.Module, batch: Batch, tokens: int) -> torch.Tensor:
    """This rank's share of the mean loss, after its backward."""
    logits = model(batch.tokens, batch.positions)
    with loss_parallel():
        loss = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), reduction="sum") / tokens
        loss.backward()
    return loss.to_local() if isinstance(loss, DTensor) else loss


def share_sequence(batch: Batch, plan: Plan, rank: int) -> Batch:
    """The tokens of one rank: cut over the context axes too."""
    batch = share(batch, plan, rank)
    for axis in plan.axes_of("context"):
        parts, index = plan.mesh.size(axis), plan.mesh.coordinate(rank)[axis]
        cut = {name: getattr(batch, name).chunk(parts, 1)[index] for name in ("tokens", "positions", "labels")}
        batch = Batch(**cut)
    return batch


def rank_reference(plan: Plan, path: str) -> None:
    """Loss and gradients of the whole batch on one rank, into a file."""
    model, batch = build(plan), make_batch(plan, VOCAB)
    loss = forward_backward(model, batch, batch.labels.numel())
    torch.save({"loss": loss.detach(), "gradients": gradients_of(model)}, path)


def rank_step(plan: Plan, path: str) -> Report:
    """One step under the plan, against the reference in a file."""
    rank = dist.get_rank()
    model = lower(plan, build(plan), device_mesh(plan.mesh, "cpu"))
    batch = make_batch(plan, VOCAB)
    with count_collectives(axis_groups(plan.mesh, rank)) as issued:
        loss = forward_backward(model, share_sequence(batch, plan, rank), batch.labels.numel())
    return compare(plan, model, loss, path, tuple(misplaced(model, plan, rank)), issued.counts())
