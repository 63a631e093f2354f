"""FSDP over a plan's units: what is stored in parts, gathered for use and summed after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard

from ..plan.ir import Plan


def shard_units(plan: Plan, model: nn.Module, options: Mapping[str, Any]) -> None:
    """Each unit of the plan is one FSDP group of the model; its gradients are summed, never averaged.

    Args:
        options: what `fully_shard` takes besides the modules and when to free.
    """
    modules = dict(model.named_modules())
    for unit in plan.units:
        members = [modules[name] for name in unit.modules]
        free = unit.after_forward == "free"
        fully_shard(members if len(members) > 1 else members[0], **options, reshard_after_forward=free)
    if not any(unit.modules == ("",) for unit in plan.units):
        fully_shard(model, **options)
    sum_gradients(model)


def sum_gradients(model: nn.Module) -> None:
    """FSDP divides no gradient, by whatever operator the device has."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)


def plain_sums(model: nn.Module) -> None:
    """FSDP reduces by a plain sum: gloo lacks the operator that a divide factor would use."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
