"""The torch parts of strategies: found by the import paths that a plan names, and put to work.

`meshlang.strategy` says what such a module may have. Everything is optional.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from ..plan.ir import Plan, StrategyUse
from .errors import LoweringError

#: Axis of the plan -> its one-dimensional mesh, or None for an axis of one rank.
MeshOf = Callable[[str], DeviceMesh | None]


def ops_of(plan: Plan) -> Iterator[tuple[StrategyUse, ModuleType]]:
    """The strategies of a plan that have a torch part, with it, in the plan's order.

    Raises:
        LoweringError: a module is not there.
    """
    for use in plan.strategies:
        if use.ops is None:
            continue
        try:
            yield use, import_module(use.ops)
        except ModuleNotFoundError as error:
            raise LoweringError([f"the strategy {use.name} names {use.ops}: {error}"]) from error


def installing(plan: Plan) -> tuple[str, ...]:
    """The strategies that put their own computation into a model: it is neither compiled nor captured."""
    return tuple(use.name for use, ops in ops_of(plan) if hasattr(ops, "install"))


def install(plan: Plan, model: nn.Module, mesh_of: MeshOf) -> tuple[nn.Module, ...]:
    """Each strategy puts its own computation into the model; the modules whose `forward` it replaced."""
    before = {module: vars(module).get("forward") for module in model.modules()}
    for use, ops in ops_of(plan):
        if hasattr(ops, "install"):
            ops.install(plan, use, model, mesh_of(use.axis))
    return tuple(module for module in model.modules() if vars(module).get("forward") is not before.get(module))
