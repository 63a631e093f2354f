"""The keys of a spec that the language or the model knows, and what else each might be called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from bases import BASES, PLUGINS, Base

from meshlang.compiler import load, resolved_of
from meshlang.diagnostics import Bag
from meshlang.language.pattern import Pattern, PatternError
from meshlang.language.plugins import load as load_plugin
from meshlang.language.shape import Rows, Schedule, Strategies, Table
from meshlang.language.tables import ROOT as TABLES
from meshlang.language.toml import Node, scan
from meshlang.mesh import KNOWN_AXES
from meshlang.source import Span


@dataclass(frozen=True, kw_only=True)
class Known:
    """A key as written, and whether another spelling of it is legal at its place."""

    span: Span
    legal: Callable[[str], bool]


def keys(base: Base) -> list[Known]:
    """Every key of the text that the language or the model knows."""
    root = scan(base.request.source, Bag())
    assert root is not None
    return list(_keys(root, TABLES, (), _Words.of(base)))


@dataclass(frozen=True, kw_only=True)
class _Words:
    """What may be a key in the tables whose keys are not fixed."""

    axes: frozenset[str]
    mesh: frozenset[str]
    names: frozenset[str]
    modules: tuple[str, ...]

    @classmethod
    def of(cls, base: Base) -> _Words:
        spec = load(base.request)
        model = resolved_of(spec, base.request).model
        order = spec.topology.order or ()
        mesh = frozenset(entry.name for entry in spec.mesh)
        axes = frozenset({*KNOWN_AXES, *(word.value for word in order)})
        return cls(axes=axes, mesh=mesh, names=model.names, modules=model.modules)

    def legal(self, path: tuple[str, ...], key: str) -> bool:
        """True where `key` is a free key of the table at `path` that means something else there."""
        if path == ("mesh",):
            return key in self.axes
        if path in (("place",), ("uneven",)) or (path[:1] in (("within",), ("at",)) and len(path) == 2):
            return key in self.names
        if path in (("within",), ("at",)):
            return self._covers(key)
        return path == ("check", "expect") and key in self.mesh

    def _covers(self, glob: str) -> bool:
        try:
            pattern = Pattern.parse(glob)
        except PatternError:
            return False
        return all(any(each.covers(module) for module in self.modules) for each in pattern.alternatives())


def _keys(node: Node, table: Table, path: tuple[str, ...], words: _Words) -> Iterator[Known]:
    if path[:2] == ("topology", "on") or path == ("launch", "set"):
        yield from _machine_keys(node, path, words)
        return
    for name, inner in node.value.items():
        if inner.key is not None:
            yield Known(span=inner.key, legal=_legal(table, path, words))
        shape = table.keys[name].shape if name in table.keys else table.free
        below = _shape(shape, name, inner)
        for each in inner.value if isinstance(inner.value, tuple) else (inner,):
            if below is not None and isinstance(each.value, dict):
                yield from _keys(each, below, (*path, name), words)


def _machine_keys(node: Node, path: tuple[str, ...], words: _Words) -> Iterator[Known]:
    """Names of machines and flags of torchtitan are anyone's; what stands in a machine is the language's again."""
    if path == ("topology", "on"):
        for machine in node.value.values():
            yield from _keys(machine, TABLES, (), words)


def _legal(table: Table, path: tuple[str, ...], words: _Words) -> Callable[[str], bool]:
    return lambda key: key in table.keys or words.legal(path, key)


def _shape(shape: object, name: str, node: Node) -> Table | None:
    """The table that stands behind a key, a plugin's fields included."""
    if isinstance(shape, Rows):
        return shape.table
    if isinstance(shape, Strategies):
        fields = {each: load_plugin(PLUGINS.strategies, each).table for each in node.value}
        return Table(keys={each: replace(_ANY, shape=table) for each, table in fields.items()})
    if isinstance(shape, Schedule):
        plugin = load_plugin(PLUGINS.schedules, node.value["schedule"].value)
        return Table(keys={**shape.shared.keys, **plugin.table.keys})
    if name in ("on", "set"):
        return Table()
    return shape if isinstance(shape, Table) else None


_ANY = TABLES.keys["mesh"]


@cache
def keys_of(name: str) -> tuple[Known, ...]:
    """The keys of a base, found once."""
    return tuple(keys(next(base for base in BASES if base.name == name)))
