"""Tensors among what modules take and give: beside them there may be masks, caches and weights of attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate

from .errors import LoweringError


def result(output: Any, where: str) -> tuple[torch.Tensor, Callable[[torch.Tensor], Any]]:
    """The tensor that a module gives, and what puts another in its place.

    Of a tuple, a list or a mapping it is the first tensor; what else is in it stays.

    Raises:
        LoweringError: there is none.
    """
    if isinstance(output, torch.Tensor):
        return output, lambda x: x
    items: list[tuple[Any, Any]] = []
    if isinstance(output, Mapping):
        items = list(output.items())
    elif isinstance(output, (tuple, list)):
        items = list(enumerate(output))
    for key, value in items:
        if isinstance(value, torch.Tensor):
            return value, partial(_put, output, key)
    raise LoweringError([f"{where} is a {type(output).__name__} without a tensor, in the plan one tensor"])


def _put(output: Any, key: Any, x: torch.Tensor) -> Any:
    """A copy of the structure with `x` at `key`."""
    if isinstance(output, tuple):
        items = [x if place == key else value for place, value in enumerate(output)]
        return output._make(items) if hasattr(output, "_make") else tuple(items)  # pyright: ignore[reportAttributeAccessIssue]
    new = copy(output)
    new[key] = x
    return new


def everywhere(value: Any, mesh: DeviceMesh, where: str) -> Any:
    """What a plan does not speak of is whole on each rank: plain tensors as DTensors over the tensor axes.

    Raises:
        LoweringError: one of them wants a gradient, and nothing says over which axes that is a sum.
    """
    if type(value) in (tuple, list):
        return type(value)([everywhere(each, mesh, where) for each in value])
    if not isinstance(value, torch.Tensor) or isinstance(value, DTensor):
        return value
    if value.requires_grad:
        raise LoweringError([f"{where} wants a gradient, and the plan does not say where the value is"])
    return DTensor.from_local(value, mesh, [Replicate()] * mesh.ndim, run_check=False)


def nowhere(value: Any, where: str) -> Any:
    """What a plan does not speak of, for a module that computes on plain tensors.

    Raises:
        LoweringError: it is a part, and nothing says of what.
    """
    if not isinstance(value, DTensor):
        return value
    if any(not placement.is_replicate() for placement in value.placements):
        raise LoweringError([f"{where} is {value.placements}, and the plan does not say where it should be"])
    return value.to_local()
