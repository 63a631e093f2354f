"""One training step under a plan, held against the same step on one rank.

The functions with `rank` in their name run on the ranks of a `RankPool`. Weights come from the
names of tensors and batches from a seed, so that every mesh sees the same numbers.
"""

from __future__ import annotations

import importlib
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from ..plan.calls import calls_at
from ..plan.ir import Plan
from .collectives import Counts, count_collectives, plan_groups
from .exact import keep_float64, plain_name

Gradients = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Token ids, their positions and the tokens to be told, each (sequences, tokens).

    Attributes:
        more: what else the model takes, by the name of its argument.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    labels: torch.Tensor
    more: dict[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one rank found.

    Attributes:
        loss: error of the loss over all ranks, relative to the loss of one rank.
        gradients: for each parameter the largest error, relative to the largest value.
        misplaced: tensors whose part on this rank is not the plan's, with both.
        counts: collectives issued; a plan's are `planned`.
    """

    loss: float
    gradients: dict[str, float]
    misplaced: tuple[str, ...]
    counts: Counts

    @property
    def worst(self) -> float:
        """The largest error of all."""
        return max(self.loss, *self.gradients.values())


def planned(plan: Plan, rank: int = 0) -> Counts:
    """The plan's collectives on one rank, as `count_collectives` counts them."""
    found: Counts = Counter()
    for call in calls_at(plan, rank):
        found[call.kind, call.axis, call.pass_, call.bytes or 0] += call.count
    return found


def differences(plan: Plan, counts: Counts, rank: int = 0) -> list[str]:
    """Collectives that were planned and not issued, or issued and not planned."""
    want = planned(plan, rank)
    if within := _edges(plan):
        counts, want = _fewer(counts, want, within)
    return [
        f"{kind} over {axis} in the {pass_}, {size} bytes: {counts[key]} issued, {want[key]} planned"
        for key in sorted(want.keys() | counts.keys())
        if counts[key] != want[key]
        for kind, axis, pass_, size in [key]
    ]


def _edges(plan: Plan) -> str:
    """The axis whose ranks send what lies at the edges of a window: those at its ends have fewer of them."""
    windows = (use.axis for use in plan.strategies if dict(use.options).get("window") is not None)
    return next(windows, "")


def _fewer(counts: Counts, want: Counts, axis: str) -> tuple[Counts, Counts]:
    """Both without the messages over an axis, where no more of them were issued than planned."""
    for pass_ in ("forward", "backward"):
        issued, most = (_messages(found, axis, pass_) for found in (counts, want))
        if issued[0] > most[0] or issued[1] > most[1]:
            return counts, want

    def others(found: Counts) -> Counts:
        return Counter({key: count for key, count in found.items() if key[:2] != ("send", axis)})

    return others(counts), others(want)


def _messages(counts: Counts, axis: str, pass_: str) -> tuple[int, int]:
    """(calls, bytes) of the messages over an axis in a pass."""
    mine = [(size, count) for (*key, size), count in counts.items() if key == ["send", axis, pass_]]
    return sum(count for _, count in mine), sum(size * count for size, count in mine)


def make_batch(plan: Plan, vocabulary: int, packed: bool = False) -> Batch:
    """The batch of one step, of the plan's sizes, the same wherever it is made.

    Args:
        packed: each sequence has three documents, whose positions begin anew; otherwise it is one.
    """
    assert plan.sizes.batch is not None
    assert plan.sizes.seq is not None
    shape = (plan.sizes.batch, plan.sizes.seq)
    generator = torch.Generator().manual_seed(1)
    tokens, labels = (torch.randint(0, vocabulary, shape, generator=generator) for _ in range(2))
    ends = (0, shape[1] // 5, shape[1] // 2, shape[1]) if packed else (0, shape[1])
    positions = torch.cat([torch.arange(b - a) for a, b in pairwise(ends)])
    return Batch(tokens=tokens, positions=positions.repeat(shape[0], 1), labels=labels)


def share(batch: Batch, plan: Plan, rank: int) -> Batch:
    """The sequences of one rank: cut over the data axes, outer first."""
    here = plan.mesh.coordinate(rank)
    parts, index = 1, 0
    for axis in plan.axes_of("data"):
        parts, index = parts * plan.mesh.size(axis), index * plan.mesh.size(axis) + here[axis]
    cut = {name: getattr(batch, name).chunk(parts)[index] for name in ("tokens", "positions", "labels")}
    more = {name: value.chunk(parts)[index] for name, value in batch.more.items()}
    return Batch(**cut, more=more)


def precision(plan: Plan) -> AbstractContextManager[None]:
    """What a plan in float64 needs of torch and torchtitan."""
    return keep_float64() if plan.precision.compute == "float64" else nullcontext()


# torchtitan


def rank_titan_reference(recipe: str, plan: Plan, path: str, data: bool = False, packed: bool = False) -> None:
    """Loss and gradients of the whole batch on one rank, without any parallelism, into a file.

    Args:
        data: the batch is of the recipe's own data, not of random tokens.
        packed: those are of several documents a sequence.
    """
    from . import titan

    with precision(plan):
        config = titan.config_of(recipe, plan)
        model = titan.build(config, plan)
        batch = titan.own_batch(config, plan) if data else make_batch(plan, titan.vocabulary(config), packed)
        loss = titan.forward_backward(config, model, batch, titan.counted(batch))
    torch.save({"loss": loss.detach(), "gradients": gradients_of(model)}, path)


def rank_titan_step(recipe: str, plan: Plan, path: str, options: dict[str, Any], data: bool = False) -> Report:
    """One step of torchtitan's model under the plan, against the reference in a file."""
    from . import titan

    rank = dist.get_rank()
    with precision(plan):
        config = titan.laid_out(titan.config_of(recipe, plan), plan)
        parallel_dims = titan.parallel_dims_of(config, plan)
        model = titan.build(config, plan, parallel_dims)
        batch = titan.own_batch(config, plan) if data else make_batch(plan, titan.vocabulary(config))
        mine = share(batch, plan, rank)
        with count_collectives(plan_groups(plan, rank)) as issued:
            loss = titan.forward_backward(config, model, mine, titan.counted(batch), parallel_dims, **options)
        misplaced = tuple(titan.misplaced(model, plan, rank))
    return compare(plan, model, loss, path, misplaced, issued.counts())


def rank_data_reference(recipe: str, plan: Plan, path: str) -> None:
    """`rank_titan_reference` on the recipe's own data."""
    rank_titan_reference(recipe, plan, path, data=True)


def rank_packed_reference(recipe: str, plan: Plan, path: str) -> None:
    """`rank_titan_reference` on sequences of several documents."""
    rank_titan_reference(recipe, plan, path, packed=True)


def rank_data_step(recipe: str, plan: Plan, path: str, options: dict[str, Any]) -> Report:
    """`rank_titan_step` on the recipe's own data."""
    return rank_titan_step(recipe, plan, path, options, data=True)


def compare(
    plan: Plan, model: nn.Module, loss: torch.Tensor, path: str, misplaced: tuple[str, ...], counts: Counts
) -> Report:
    """A rank's report on a step that has run."""
    reference = torch.load(path)
    return Report(
        loss=relative_error(whole_loss(plan, loss), reference["loss"]),
        gradients=errors(gradients_of(model), reference["gradients"]),
        misplaced=misplaced,
        counts=counts,
    )


def whole_loss(plan: Plan, loss: torch.Tensor) -> torch.Tensor:
    """The sum of the ranks' losses over the axes that share out the tokens."""
    total = loss.detach().clone()
    dist.all_reduce(total)
    copies = plan.mesh.product(plan.axes_of("tensor"))
    return total / copies


def gradients_of(model: nn.Module) -> Gradients:
    """Every parameter's whole gradient, by the parameter's first name."""
    found: Gradients = {}
    for name, parameter in model.named_parameters():
        grad = parameter.grad
        assert grad is not None, f"{name} has no gradient"
        found[plain_name(name)] = grad.full_tensor() if isinstance(grad, DTensor) else grad
    return found


def errors(found: Gradients, reference: Gradients) -> dict[str, float]:
    """Relative error of each tensor; both sides have the same names."""
    assert found.keys() == reference.keys(), found.keys() ^ reference.keys()
    return {name: relative_error(found[name], reference[name]) for name in reference}


def relative_error(found: torch.Tensor, reference: torch.Tensor) -> float:
    """The largest absolute error over the largest absolute value."""
    found, reference = found.double(), reference.double()
    return float((found - reference).abs().max() / reference.abs().max())


def named(path: str) -> Any:
    """The object that "package.module:name" names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
