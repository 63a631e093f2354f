"""A plugin class -> the keys of its table; values of these keys -> an instance."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..registry import PluginError, Registry
from .shape import Choice, Either, Key, ListOf, Real, Shape, Table, Text, Truth, Whole


class RefusedError(Exception):
    """The plugin itself finds its values wrong."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loaded:
    """A plugin class, the name it is installed under, and the keys of its table."""

    name: str
    plugin: type[Any]
    table: Table


def load(registry: Registry, name: str) -> Loaded:
    """The plugin behind an installed name, and the keys that its fields make.

    Raises:
        PluginError: it does not load, is no dataclass, or a field has a type that TOML lacks.
    """
    plugin = registry.load(name)
    if not (isinstance(plugin, type) and dataclasses.is_dataclass(plugin)):
        raise PluginError(f"`{name}` is no dataclass, and only the fields of one are keys")
    try:
        hints = get_type_hints(plugin)
    except Exception as error:
        raise PluginError(f"`{name}` has fields of unknown types: {type(error).__name__}: {error}") from error
    keys = {
        field.name: _key(name, field, hints[field.name])
        for field in dataclasses.fields(plugin)
        if field.init and not field.name.startswith("_")
    }
    return Loaded(name=name, plugin=plugin, table=Table(keys=keys))


def joined(shared: Table, own: Table) -> Table:
    """The keys of `[pipeline]`: those of every schedule, and one schedule's own.

    A shared key that is a field of the schedule too is required when the field is.
    """
    both = {
        name: dataclasses.replace(key, required=key.required or own.keys[name].required)
        for name, key in shared.keys.items()
        if name in own.keys
    }
    return Table(keys={**shared.keys, **own.keys, **both})


def build(loaded: Loaded, values: Mapping[str, Any]) -> Any:
    """The plugin with its fields set; an optional field that is not written is None.

    Raises:
        RefusedError: the class raises ValueError.
        PluginError: the class raises anything else.
    """
    empty = {
        field.name: None
        for field in dataclasses.fields(loaded.plugin)
        if field.name in loaded.table.keys and field.name not in values and not _has_default(field)
    }
    try:
        return loaded.plugin(**{**empty, **values})
    except ValueError as error:
        raise RefusedError(str(error)) from error
    except Exception as error:
        raise PluginError(f"`{loaded.name}` cannot be built: {type(error).__name__}: {error}") from error


def _key(name: str, field: dataclasses.Field[Any], hint: Any) -> Key:
    shape, optional = _shape(hint), _is_optional(hint)
    if shape is None:
        raise PluginError(f"`{name}`: the field `{field.name}` has the type {hint}, which TOML cannot spell")
    says = str(field.metadata.get("says", f"`{field.name}` of `{name}`"))
    return Key(shape=shape, says=says, required=not optional and not _has_default(field))


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _is_optional(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)


_PLAIN: Mapping[Any, Shape] = {str: Text(), int: Whole(), float: Real(), bool: Truth()}


def _shape(hint: Any) -> Shape | None:
    """The shape that a field's type stands for, or None."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        words = tuple(word for word in args if type(word) in (str, int))
        return Choice(words) if len(words) == len(args) else None
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        each = _shape(args[0])
        return None if each is None else ListOf(each)
    if origin in (Union, types.UnionType):
        shapes = [_shape(each) for each in args if each is not type(None)]
        kept = tuple(each for each in shapes if each is not None)
        if not kept or len(kept) < len(shapes):
            return None
        return kept[0] if len(kept) == 1 else Either(kept)
    return None
