"""Cards and real models: a model named on the command line, built on the meta device, as plain facts."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import nn

from ..card import check, init
from ..card.facts import Facts, ModuleFact, TensorFact
from ..diagnostics import Diagnostic
from ..near import near
from ..source import Source
from .recipe import no_module


class TargetError(Exception):
    """A name of a model that names none; the message says why."""


def check_card(source: Source, flavor: str, module: nn.Module) -> tuple[Diagnostic, ...]:
    """Every difference between a flavor of a card and a model; none when they agree."""
    return check.check_card(source, flavor, facts_of(module))


def init_card(module: nn.Module, name: str, flavor: str) -> str:
    """A first card for a model, with each guess marked for review; it agrees with the model.

    Raises:
        TargetError: a tensor has a dimension of 0, which no card can say.
    """
    facts = facts_of(module)
    empty = [tensor for tensor in facts.tensors if 0 in tensor.shape]
    if empty:
        shapes = ", ".join(f"`{tensor.fqn}` {tensor.shape}" for tensor in empty[:3])
        more = f" and {len(empty) - 3} more" if len(empty) > 3 else ""
        raise TargetError(f"a card has sizes of 1 or more, and nothing is in {shapes}{more}: build the model without")
    return init.init_card(facts, name, flavor)


def facts_of(module: nn.Module) -> Facts:
    """What a model holds: every name of every tensor, persistent or not, and every module."""
    parameters = list(module.named_parameters(remove_duplicate=False))
    buffers = list(module.named_buffers(remove_duplicate=False))
    modules = {fqn: _module(each) for fqn, each in module.named_modules(remove_duplicate=False)}
    return Facts(tensors=(*_tensors(parameters, "parameter"), *_tensors(buffers, "buffer")), modules=modules)


def _tensors(named: Iterable[tuple[str, torch.Tensor]], kind: Any) -> Iterable[TensorFact]:
    named = tuple(named)
    names: dict[int, list[str]] = {}
    for fqn, tensor in named:
        names.setdefault(id(tensor), []).append(fqn)
    for fqn, tensor in named:
        tied = tuple(other for other in names[id(tensor)] if other != fqn)
        yield TensorFact(fqn=fqn, kind=kind, shape=tuple(tensor.shape), tied=tied)


def _module(module: nn.Module) -> ModuleFact:
    arguments = _forward(type(module))
    by_name = [a for a in arguments if a.kind in (a.POSITIONAL_OR_KEYWORD, a.KEYWORD_ONLY)]
    return ModuleFact(
        kind=type(module).__name__,
        inputs=tuple(a.name for a in by_name),
        required=tuple(a.name for a in by_name if a.default is a.empty),
        open=any(a.kind is a.VAR_KEYWORD for a in arguments),
        numbers=_numbers(module),
        config=_numbers(getattr(module, "config", None)),
    )


def _numbers(thing: object) -> dict[str, int]:
    """Whole numbers among the attributes of an object; none of one without attributes."""
    found = getattr(thing, "__dict__", {})
    return {name: value for name, value in found.items() if type(value) is int and not name.startswith("_")}


def _forward(kind: type[nn.Module]) -> list[inspect.Parameter]:
    """Arguments of a class's forward but self; none of one that Python has no signature of."""
    try:
        return list(inspect.signature(kind.forward).parameters.values())[1:]
    except (TypeError, ValueError):
        return []


def build_module(target: str, flavor: str | None = None) -> nn.Module:
    """The model that `package.module:factory` names, on the meta device.

    The factory gives an nn.Module, a torchtitan model config or model spec, or a recipe's
    Trainer.Config. It takes no argument, or one: the flavor. A factory that the module lacks is
    looked for in its `config_registry` too, where torchtitan keeps recipes.

    Raises:
        TargetError: no such module or attribute, another kind of thing, or the factory fails.
    """
    name, colon, path = target.partition(":")
    if not name or not colon or not path:
        raise TargetError(f"`{target}` is not of the form package.module:factory")
    factory = _attribute(_imported(name), path)
    with torch.device("meta"):
        made = factory if isinstance(factory, nn.Module) else _called(factory, target, flavor)
        return _built(made, target)


def _imported(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise TargetError(f"`{name}` is no name of a module")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise TargetError(no_module(error.name)) from error
        raise TargetError(f"`{name}` cannot be imported: {error}") from error
    except Exception as error:
        raise TargetError(f"`{name}` cannot be imported: {type(error).__name__}: {error}") from error


def _attribute(module: ModuleType, path: str) -> Any:
    found = _reached(module, path)
    if found is not None:
        return found
    recipes = f"{module.__name__}.config_registry"
    places = [module, _imported(recipes)] if _exists(module, recipes) else [module]
    found = _reached(places[-1], path)
    if found is not None:
        return found
    guess = near(path, [name for place in places for name in vars(place) if not name.startswith("_")])
    nearest = f"; the nearest is `{guess}`" if guess else ""
    raise TargetError(f"`{module.__name__}` has no `{path}`{nearest}")


def _reached(module: ModuleType, path: str) -> Any:
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _exists(package: ModuleType, name: str) -> bool:
    return hasattr(package, "__path__") and find_spec(name) is not None


def _called(factory: Any, target: str, flavor: str | None) -> Any:
    if not callable(factory):
        raise TargetError(f"`{target}` is a {type(factory).__name__}, not a function that gives a model")
    given = _arguments(factory, target, flavor)
    try:
        return factory(*given)
    except Exception as error:
        raise TargetError(f"`{target}` failed: {type(error).__name__}: {error}") from error


def _arguments(factory: Any, target: str, flavor: str | None) -> tuple[str, ...]:
    try:
        arguments = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return ()
    needed = [a.name for a in arguments if a.default is a.empty and a.kind not in (a.VAR_POSITIONAL, a.VAR_KEYWORD)]
    if not needed:
        return ()
    if len(needed) == 1 and flavor is not None:
        return (flavor,)
    raise TargetError(f"`{target}` needs arguments: {', '.join(needed)}; a function without any is called")


def _built(made: Any, target: str) -> nn.Module:
    """An nn.Module of what a factory gave: a module, a model config, a model spec, a recipe."""
    config = made
    for inner in ("model_spec", "model"):
        if not isinstance(config, nn.Module):
            config = getattr(config, inner, config)
    if isinstance(config, nn.Module):
        return config
    build = getattr(config, "build", None)
    if build is None:
        raise TargetError(f"`{target}` gave a {type(made).__name__}, which is no nn.Module, model config or recipe")
    try:
        module = build()
    except Exception as error:
        raise TargetError(f"`{target}`: the model config failed to build: {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        raise TargetError(f"`{target}` builds a {type(module).__name__}, which is no nn.Module")
    return module
