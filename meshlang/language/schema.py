"""The language as a JSON Schema (2020-12), for editors. Made from the reader's own tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..registry import PluginError, Plugins, Registry
from .files import VERSION, presets
from .leaves import FLAG, FUNCTION, UNITS
from .plugins import Loaded, joined, load
from .shape import (
    Anything,
    Axes,
    AxisSize,
    Bytes,
    Choice,
    Either,
    Flags,
    Function,
    Glob,
    Key,
    Kind,
    ListOf,
    Names,
    Real,
    Rows,
    Schedule,
    Shape,
    Strategies,
    Table,
    Text,
    Truth,
    Version,
    Whole,
)
from .tables import ROOT

_WORD = {"type": "string", "minLength": 1}
_WORDS = {"type": "array", "items": _WORD, "minItems": 1, "uniqueItems": True}

_FIXED: Mapping[type, dict[str, Any]] = {
    Anything: {"type": "object", "additionalProperties": True},
    Axes: {"anyOf": [_WORD, _WORDS]},
    AxisSize: {"anyOf": [{"type": "integer", "minimum": 1}, {"const": "rest"}]},
    Bytes: {"type": "string", "pattern": rf"^\s*[0-9]+(\.[0-9]+)?\s*({'|'.join(UNITS)})\s*$"},
    Flags: {"type": "object", "propertyNames": {"pattern": f"^{FLAG}$"}, "additionalProperties": True},
    Function: {"type": "string", "pattern": f"^{FUNCTION}$"},
    Glob: _WORD,
    Kind: {"type": "string", "pattern": r"^(R|S\([0-9]+\)|stored)$"},
    Names: _WORDS,
    Text: _WORD,
    Truth: {"type": "boolean"},
    Version: {"const": VERSION},
}


def schema(plugins: Plugins) -> dict[str, Any]:
    """The schema of a whole spec, with the plugins that are installed now.

    A file that another one includes may leave out what is required here.
    """
    found = _Schema(plugins).table(ROOT)
    found["properties"]["include"]["items"]["examples"] = [f"preset:{name}" for name in presets()]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "meshlang spec", **found}


class _Schema:
    """Shapes -> schemas."""

    def __init__(self, plugins: Plugins) -> None:
        self.plugins = plugins

    def of(self, shape: Shape) -> dict[str, Any]:
        """The schema of one shape."""
        if isinstance(shape, Table):
            return self.table(shape)
        if isinstance(shape, Rows):
            return {"type": "array", "items": self.table(shape.table)}
        if isinstance(shape, ListOf):
            return {"type": "array", "items": self.of(shape.each)}
        if isinstance(shape, Either):
            return {"anyOf": [self.of(each) for each in shape.shapes]}
        if isinstance(shape, Choice):
            return {"enum": list(shape.words)}
        if isinstance(shape, Whole):
            return _numbers("integer", shape.least, shape.most)
        if isinstance(shape, Real):
            found = _numbers("number", shape.low, shape.high)
            return found | {"exclusiveMinimum": found.pop("minimum")} if shape.above else found
        if isinstance(shape, Strategies):
            return self._strategies()
        if isinstance(shape, Schedule):
            return self._pipeline(shape.shared)
        return dict(_FIXED[type(shape)])

    def table(self, shape: Table) -> dict[str, Any]:
        """An object; keys that are not listed are refused unless the table is free."""
        found: dict[str, Any] = {
            "type": "object",
            "properties": {name: self._key(key) for name, key in shape.keys.items()},
            "required": [name for name, key in shape.keys.items() if key.required],
            "additionalProperties": False if shape.free is None else self._free(shape.free),
        }
        if shape.least:
            found["minProperties"] = len(found["required"]) + 1
        return found

    def _key(self, key: Key) -> dict[str, Any]:
        return {**self.of(key.shape), "description": key.says}

    def _free(self, shape: Shape) -> dict[str, Any]:
        """What any key of the user's own holds, in the words of its shape."""
        says = " ".join((type(shape).__doc__ or "").split())
        return {"description": says, **self.of(shape)}

    def _strategies(self) -> dict[str, Any]:
        """One table for each installed strategy."""
        tables = {each.name: _described(each, self.table(each.table)) for each in _loaded(self.plugins.strategies)}
        return {"type": "object", "properties": tables, "additionalProperties": False}

    def _pipeline(self, shared: Table) -> dict[str, Any]:
        """The shared keys, and under each schedule's name the keys of its own."""
        installed = {each.name: each for each in _loaded(self.plugins.schedules)}
        found = self.table(shared)
        found["properties"]["schedule"]["enum"] = sorted(installed)
        found["additionalProperties"] = True
        found["allOf"] = [
            {
                "if": {"properties": {"schedule": {"const": name}}, "required": ["schedule"]},
                "then": _described(each, self.table(joined(shared, each.table))),
            }
            for name, each in installed.items()
        ]
        return found


def _loaded(registry: Registry) -> Iterable[Loaded]:
    """Every plugin that loads."""
    for name in registry.names():
        try:
            yield load(registry, name)
        except PluginError:
            continue


def _described(loaded: Loaded, found: dict[str, Any]) -> dict[str, Any]:
    """A plugin's table under the first line of its class."""
    return {**found, "description": (loaded.plugin.__doc__ or loaded.name).strip().partition("\n")[0]}


def _numbers(kind: str, low: float | None, high: float | None) -> dict[str, Any]:
    bounds = {"minimum": low, "maximum": high}
    return {"type": kind, **{name: bound for name, bound in bounds.items() if bound is not None}}
