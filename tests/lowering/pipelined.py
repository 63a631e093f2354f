"""A small decoder in stages, run by any Program on threads; and the same sequences in one go.

Shapes: B sequences, T tokens, D hidden, N heads, K key heads, H numbers a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, create_mask
from torch.utils.checkpoint import checkpoint

from meshlang.lowering.carry import Carrying, Now, carry
from meshlang.lowering.execute import Executor, Outcome
from meshlang.lowering.parts import Feed, ModulePart
from meshlang.lowering.watch import Watch
from meshlang.pipeline.ir import Program
from meshlang.testing.exact import seeded_init
from meshlang.testing.wires import Wires, on_threads

B, D, N, K, H, VOCAB, TOKENS = 2, 16, 4, 2, 4, 13, 24


_dense: WeakKeyDictionary[Any, torch.Tensor] = WeakKeyDictionary()


def dense(mask: Any) -> torch.Tensor:
    """A block mask as booleans; layers share it."""
    if mask not in _dense:
        _dense[mask] = create_mask(mask.mask_mod, *mask.shape, device="cpu")
    return _dense[mask]


class Inner(nn.Module):
    """Attention under a mask, with more queries than key heads."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, attention_masks: Any) -> torch.Tensor:
        """(B, T, N, H), as q."""
        mask = dense(attention_masks)
        q, k, v = (x.transpose(1, 2) for x in (q, k.repeat_interleave(N // K, 2), v.repeat_interleave(N // K, 2)))
        scores = (q @ k.transpose(-1, -2) / H**0.5).masked_fill(~mask, -torch.inf)
        return (scores.softmax(-1) @ v).transpose(1, 2)


class Layer(nn.Module):
    """Attention and a product, each added to its input, by a share that falls with the depth.

    Without the share, float32 is 8e-6 away from float64 in one process already, at 24 layers.
    """

    def __init__(self, checkpointed: bool, share: float) -> None:
        super().__init__()
        self.share = share
        self.norm = nn.RMSNorm(D)
        self.wq, self.wo = nn.Linear(D, N * H, bias=False), nn.Linear(N * H, D, bias=False)
        self.wk, self.wv = nn.Linear(D, K * H, bias=False), nn.Linear(D, K * H, bias=False)
        self.inner = Inner()
        self.up = nn.Linear(D, D, bias=False)
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor, attention_masks: Any) -> torch.Tensor:
        """(B, T, D), as x."""
        if self.checkpointed and torch.is_grad_enabled():
            out = checkpoint(self.compute, x, attention_masks, use_reentrant=False)
            assert isinstance(out, torch.Tensor)
            return out
        return self.compute(x, attention_masks)

    def compute(self, x: torch.Tensor, attention_masks: Any) -> torch.Tensor:
        """What is computed again in the backward, if anything is."""
        y = self.norm(x)
        q, k, v = (w(y).unflatten(2, (-1, H)) for w in (self.wq, self.wk, self.wv))
        x = x + self.share * self.wo(self.inner(q, k, v, attention_masks=attention_masks).flatten(2))
        return x + self.share * F.silu(self.up(x))


class Stage(nn.Module):
    """Some of the layers; the first has the tables, the last the head."""

    def __init__(self, index: int, stages: int, checkpointed: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, D) if index == 0 else None
        self.places = nn.Embedding(TOKENS, D) if index == 0 else None
        self.layer = Layer(checkpointed, (2 * stages) ** -0.5)
        self.head = nn.Linear(D, VOCAB, bias=False) if index == stages - 1 else None

    def forward(self, x: torch.Tensor, *, positions: torch.Tensor, attention_masks: Any) -> torch.Tensor:
        """(B, T) or (B, T, D) -> (B, T, D), or logits (B, T, vocabulary)."""
        if self.tokens is not None and self.places is not None:
            x = self.tokens(x) + self.places(positions)
        x = self.layer(x, attention_masks)
        return self.head(x) if self.head is not None else x


@dataclass(frozen=True, kw_only=True)
class Case:
    """How the Program is run."""

    program: Program
    lengths: Sequence[int]
    documents: Sequence[int] = (TOKENS,)
    checkpointed: bool = False
    dtype: torch.dtype = torch.float64
    window: int = 2
    limit: float = 60.0


def loss_of(total: int) -> Any:
    """(logits, labels) -> the sum of their losses, over `total` tokens."""
    return lambda logits, labels: F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / total


def feed(sequence: int, documents: Sequence[int]) -> Feed:
    """The data of one sequence: documents of these lengths packed into it."""
    generator = torch.Generator().manual_seed(sequence)
    tokens, labels = (torch.randint(0, VOCAB, (B, TOKENS), generator=generator) for _ in range(2))
    of = torch.repeat_interleave(torch.arange(len(documents)), torch.tensor(documents))
    positions = torch.cat([torch.arange(length) for length in documents]).repeat(B, 1)

    def seen(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return (q >= k) & (of[q] == of[k])

    mask = create_block_mask(seen, B, None, TOKENS, TOKENS, device="cpu")
    return Feed(tokens=tokens, labels=labels, more={"positions": positions, "attention_masks": mask})


def stage(index: int, case: Case) -> Stage:
    """A stage with the weights that its index and names give."""
    made = Stage(index, case.program.stages, case.checkpointed).to(case.dtype)
    holder = nn.ModuleDict({f"s{index}": made})
    seeded_init(holder)
    return made


@dataclass(kw_only=True)
class Ran:
    """What a rank has: its outcome, and the gradients of each (replica, stage)."""

    outcome: Outcome
    gradients: dict[tuple[int, int], dict[str, torch.Tensor]]
    carrying: list[Carrying]


def parts_of(
    case: Case, rank: int, now: Now, feeds: dict[int, Feed], *, train: bool = True
) -> dict[tuple[int, int], ModulePart]:
    """The stages of a rank."""
    found, program = {}, case.program
    total = program.sequences * B * TOKENS
    for replica, index in program.held(rank):
        module = stage(index, case)
        carrying = (carry(module.layer.inner, ("q", "k", "v"), now),) if program.subsequences > 1 else ()
        found[replica, index] = ModulePart(
            module=module,
            now=now,
            feeds=feeds,
            lengths=case.lengths,
            shape=lambda kind, tokens: (B, tokens, D),
            dtype=case.dtype,
            device=torch.device("cpu"),
            loss=loss_of(total) if index == program.stages - 1 else None,
            carrying=carrying,
            train=train,
        )
    return found


def run(case: Case, *, train: bool = True) -> list[Ran]:
    """One step of all ranks, on threads."""
    program, wires = case.program, Wires(limit=case.limit)
    feeds = {sequence: feed(sequence, case.documents) for sequence in range(program.sequences)}
    rows = Now().rows  # masks are the same on all ranks, and dear to make
    watches = [
        Watch(rank=rank, ranks=program.ranks, order=order, board=wires) for rank, order in enumerate(program.order)
    ]

    def one(rank: int) -> Ran:
        now = Now(rows=rows)
        parts = parts_of(case, rank, now, feeds, train=train)
        executor = Executor(
            program=program, rank=rank, parts=parts, transport=wires.end(rank), watch=watches[rank], window=case.window
        )
        outcome = executor.step(backward=train)
        gradients = {
            key: {name: p.grad for name, p in part.module.named_parameters() if p.grad is not None}
            for key, part in parts.items()
        }
        return Ran(outcome=outcome, gradients=gradients, carrying=[c for p in parts.values() for c in p.carrying])

    try:
        return on_threads(program.ranks, one)
    finally:
        for each in watches:
            each.close()


def whole(case: Case) -> tuple[dict[int, torch.Tensor], list[dict[str, torch.Tensor]]]:
    """(loss of each sequence, gradients of each stage) of whole sequences through all stages in one process."""
    program = case.program
    modules = [stage(index, case) for index in range(program.stages)]
    losses = {}
    for sequence in range(program.sequences):
        data = feed(sequence, case.documents)
        x: Any = data.tokens
        for module in modules:
            x = module(x, **data.more)
        loss = loss_of(program.sequences * B * TOKENS)(x, data.labels)
        loss.backward()
        losses[sequence] = loss.detach()
    gradients = [{name: p.grad for name, p in m.named_parameters() if p.grad is not None} for m in modules]
    return losses, gradients


def errors(case: Case) -> tuple[float, list[Ran]]:
    """The largest relative error of any loss and any gradient, both replicas' summed, and what the ranks had."""
    ran = run(case)
    losses, gradients = whole(case)
    found = {sequence: loss for each in ran for sequence, loss in each.outcome.losses.items()}
    assert found.keys() == losses.keys()
    worst = max(_error(found[each], losses[each]) for each in losses)
    for index, wanted in enumerate(gradients):
        mine = [each.gradients[key] for each in ran for key in each.gradients if key[1] == index]
        assert len(mine) == case.program.replicas
        assert all(grads.keys() == wanted.keys() for grads in mine)
        for name in wanted:
            total = torch.stack([grads[name] for grads in mine]).sum(0)
            worst = max(worst, _error(total, wanted[name]))
    return worst, ran


def _error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max())
