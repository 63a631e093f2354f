"""One step of Hugging Face transformers' models under a plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional as F
from transformers_models import MODELS

from meshlang.lowering.dtensor import lower
from meshlang.lowering.mesh import device_mesh
from meshlang.plan.ir import Plan
from meshlang.testing.collectives import axis_groups, count_collectives
from meshlang.testing.exact import seeded_init
from meshlang.testing.parity import Batch, Report, compare, gradients_of, make_batch, precision, share
from meshlang.testing.titan import misplaced


def build(plan: Plan) -> nn.Module:
    """The plan's model with weights that its tensors' names give; its other numbers are its own."""
    name, _, flavor = plan.model.partition("/")
    model = MODELS[name](flavor).to(getattr(torch, plan.precision.state))
    seeded_init(model)
    return model


@contextmanager
def wide(plan: Plan) -> Iterator[None]:
    """In a plan of float64, where transformers' Qwen3 says float32 it computes in float64."""
    from transformers.models.qwen3 import modeling_qwen3

    with precision(plan):
        before = modeling_qwen3.torch
        if plan.precision.compute == "float64":
            modeling_qwen3.torch = _Wide("torch")  # pyright: ignore[reportAttributeAccessIssue]
        try:
            yield
        finally:
            modeling_qwen3.torch = before


class _Wide(ModuleType):
    """torch, whose float32 is float64."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, "float64" if name == "float32" else name)


def forward_backward(model: nn.Module, batch: Batch, tokens: int) -> torch.Tensor:
    """This rank's share of the mean loss, after its backward."""
    logits = model(input_ids=batch.tokens).logits
    with loss_parallel():
        loss = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), reduction="sum") / tokens
        loss.backward()
    return loss.to_local() if isinstance(loss, DTensor) else loss


def rank_reference(plan: Plan, path: str) -> None:
    """Loss and gradients of the whole batch on one rank, of the model as transformers has it, into a file."""
    with wide(plan):
        model, batch = build(plan), make_batch(plan, 64)
        loss = forward_backward(model, batch, batch.labels.numel())
    torch.save({"loss": loss.detach(), "gradients": gradients_of(model)}, path)


def rank_step(plan: Plan, path: str) -> Report:
    """One step under the plan, against the reference in a file."""
    rank = dist.get_rank()
    with wide(plan):
        model = lower(plan, build(plan), device_mesh(plan.mesh, "cpu"))
        batch = make_batch(plan, 64)
        with count_collectives(axis_groups(plan.mesh, rank)) as issued:
            loss = forward_backward(model, share(batch, plan, rank), batch.labels.numel())
        return compare(plan, model, loss, path, tuple(misplaced(model, plan, rank)), issued.counts())


def rank_labelled(plan: Plan) -> None:
    """A forward with labels, which transformers turns into a loss."""
    with wide(plan):
        model = lower(plan, build(plan), device_mesh(plan.mesh, "cpu"))
        batch = share(make_batch(plan, 64), plan, dist.get_rank())
        model(input_ids=batch.tokens, labels=batch.labels)
