"""Does the plan speak of the model that is there? Every name on either side has its match.

A tensor, module or argument that only one side knows is an error: what a plan says must be
done, and what a model holds must be said.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import nn

from ..near import near
from ..plan.ir import Edge, Plan
from .errors import LoweringError


def fit(plan: Plan, model: nn.Module) -> None:
    """Nothing, when every tensor, boundary and unit of the plan is the model's, and the other way round.

    Raises:
        LoweringError: with each name that has no match.
    """
    problems = [*_tensors(plan, model), *_boundaries(plan, model), *_units(plan, model)]
    if problems:
        raise LoweringError(problems)


def named_states(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by every name that they have, tied ones included."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return parameters | dict(model.named_buffers(remove_duplicate=False))


def _tensors(plan: Plan, model: nn.Module) -> Iterator[str]:
    here = named_states(model)
    planned = plan.by_fqn
    for fqn in sorted(planned.keys() - here.keys()):
        yield f"tensor {fqn} of the plan is not in the model{_guess(fqn, here)}"
    for fqn in sorted(here.keys() - planned.keys()):
        yield f"tensor {fqn} of the model is not in the plan{_guess(fqn, planned)}"
    for fqn in sorted(planned.keys() & here.keys()):
        tensor = planned[fqn]
        shape = tuple(here[fqn].shape)
        if tensor.kind == "parameter" and shape != tensor.shape:
            yield f"tensor {fqn} has shape {shape}, in the plan {tensor.shape}"


def _guess(name: str, names: Iterable[str]) -> str:
    guess = near(name, names)
    return f"; did you mean {guess}?" if guess else ""


def _boundaries(plan: Plan, model: nn.Module) -> Iterator[str]:
    modules = dict(model.named_modules())
    for edge in plan.edges:
        module = modules.get(edge.module)
        if module is None:
            yield f"module {edge.module} of the plan is not in the model"
        elif edge.port != "output" and not takes(module, argument(edge)):
            yield f"{edge.module or 'the model'} takes no argument {argument(edge)}: {', '.join(arguments(module))}"


def argument(edge: Edge) -> str:
    """The forward argument that an input edge is about."""
    return edge.port.removeprefix("input.")


def takes(module: nn.Module, name: str) -> bool:
    """Whether the module's forward takes an argument of this name; a forward with `**options` takes any."""
    open_ = any(each.kind is each.VAR_KEYWORD for each in _parameters(module))
    return open_ or name in arguments(module)


def arguments(module: nn.Module) -> tuple[str, ...]:
    """Names of the arguments of a module's forward, in order, but for the module itself."""
    return tuple(a.name for a in _parameters(module) if a.kind not in (a.VAR_POSITIONAL, a.VAR_KEYWORD))


def by_place(module: nn.Module) -> tuple[str, ...]:
    """Names of those that may be given without their name, in order."""
    return tuple(a.name for a in _parameters(module) if a.kind in (a.POSITIONAL_ONLY, a.POSITIONAL_OR_KEYWORD))


def _parameters(module: nn.Module) -> list[inspect.Parameter]:
    """What the class's forward takes behind the module, also through decorators that keep its signature."""
    forward: Callable[..., object] = type(module).forward
    return list(inspect.signature(forward).parameters.values())[1:]


def _units(plan: Plan, model: nn.Module) -> Iterator[str]:
    modules = dict(model.named_modules())
    for unit in plan.units:
        yield from (f"module {name} of a unit is not in the model" for name in unit.modules if name not in modules)
    held = {fqn for unit in plan.units for fqn in unit.tensors}
    for tensor in plan.tensors:
        if tensor.kind == "parameter" and tensor.fqn not in held:
            yield f"parameter {tensor.fqn} is in no unit"
