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


def sum_at_last(model: FSDPModule) -> None:
    """The next backward adds to the gradients of this rank, and leaves their sum over ranks to `sum_now`."""
    model.set_is_last_backward(False)
    model.set_reshard_after_backward(False)
    model.set_requires_gradient_sync(False)


def sum_now(model: FSDPModule) -> None:
    """Gradients that were left apart are summed over ranks, and gathered parameters are freed.

    torch's own pipelines do it by these calls, which have no public form.
    """
    model.set_is_last_backward(True)
    model.set_reshard_after_backward(True)
    model.set_requires_gradient_sync(True)
    state = fully_shard.state(model)  # pyright: ignore[reportFunctionMemberAccess]
    for each in state._state_ctx.all_states:
        for group in each._fsdp_param_groups:
            group.post_backward()
    state._root_post_backward_final_callback()
