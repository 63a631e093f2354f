"""Reads a node by its shape: every finding into the bag, the values with their places out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..diagnostics import Bag, Diagnostic, Edit, Label
from ..near import near
from ..registry import PluginError, Plugins, Registry
from . import leaves
from .findings import empty_table, missing_key, offer, place, plugin_broken, unknown_key, unknown_plugin, wrong_type
from .plugins import Loaded, RefusedError, build, joined, load
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
from .spec import PluginTable, Written
from .toml import Node

_LEAVES: Mapping[type, Callable[[Any, Node, str, Bag], Any]] = {
    Whole: leaves.whole,
    Real: leaves.real,
    Truth: leaves.truth,
    Text: leaves.text,
    Function: leaves.function,
    Choice: leaves.choice,
    Version: leaves.version,
    Bytes: leaves.memory,
    AxisSize: leaves.axis_size,
    Axes: leaves.axes,
    Names: leaves.names,
    Glob: leaves.glob,
    Kind: leaves.kind,
    Flags: leaves.flags,
}


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A value that its shape accepts. `value` holds `Taken` again for tables and arrays of tables."""

    value: Any
    node: Node

    @property
    def written(self) -> Written[Any]:
        """The value as the Spec keeps it."""
        return Written(value=self.value, span=self.node.span, key=place(self.node))


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Where findings go, and which plugins there are."""

    bag: Bag
    plugins: Plugins

    def take(self, shape: Shape, node: Node, name: str) -> Taken | None:
        """The value of a node, or None when it is refused, and the bag says why."""
        value = self._value(shape, node, name)
        return None if value is None else Taken(value=value, node=node)

    def _value(self, shape: Shape, node: Node, name: str) -> Any:
        if isinstance(shape, Table):
            return self.table(shape, node, name)
        if isinstance(shape, Rows):
            return self._rows(shape, node, name)
        if isinstance(shape, ListOf):
            return self._list(shape, node, name)
        if isinstance(shape, Either):
            return self._either(shape, node, name)
        if isinstance(shape, Strategies):
            return self._strategies(shape, node, name)
        if isinstance(shape, Schedule):
            return self._pipeline(shape, node, name)
        if isinstance(shape, Anything):
            return node if isinstance(node.value, dict) else self.bag.add(wrong_type(name, shape, node))
        return _LEAVES[type(shape)](shape, node, name, self.bag)

    def table(self, shape: Table, node: Node, name: str) -> dict[str, Taken] | None:
        """Key -> value of a table; a key that is refused is left out."""
        if not isinstance(node.value, dict):
            return self.bag.add(wrong_type(name, shape, node))
        taken: dict[str, Taken] = {}
        strays: dict[str, Node] = {}
        for key, inner in node.value.items():
            known = shape.keys.get(key)
            if known is None and shape.free is None:
                strays[key] = inner
                continue
            each = shape.free if known is None else known.shape
            assert each is not None
            if known is None and shape.globs and not self._is_glob(name, key, inner):
                continue
            value = self.take(each, inner, _path(name, key) if isinstance(each, Table | Rows) else key)
            if value is not None:
                taken[key] = value
        missing = {key: what for key, what in shape.keys.items() if what.required and key not in node.value}
        self._report(node, name, shape, strays, missing)
        if shape.least and not (node.value.keys() - shape.keys.keys() if shape.free else node.value):
            self.bag.add(empty_table(_where(name), shape.least, node))
        return taken

    def _report(
        self, node: Node, name: str, shape: Table, strays: Mapping[str, Node], missing: Mapping[str, Key]
    ) -> None:
        """Unknown and missing keys; a missing key that an unknown one nearly spells is told once."""
        absent = [key for key in shape.keys if key not in node.value]
        spelled: set[str] = set()
        for key, inner in strays.items():
            meant = near(key, absent) or near(key, shape.keys)
            spelled |= {meant} if meant else set()
            self.bag.add(unknown_key(_where(name), key, inner, tuple(shape.keys), meant))
        for key, what in missing.items():
            meant = near(key, node.value.keys() - shape.keys.keys()) if shape.free else None
            if meant is not None:
                self.bag.add(unknown_key(_where(name), meant, node.value[meant], tuple(shape.keys), key))
            elif key not in spelled:
                fix = Edit(span=node.span.source.span(0, 0), text="meshlang = 1\n") if key == "meshlang" else None
                self.bag.add(missing_key(_where(name), key, what.says, node, fix))

    def _is_glob(self, name: str, key: str, node: Node) -> bool:
        """True for a pattern; one whose dots TOML took for its own is told so."""
        if isinstance(node.value, dict) and any(_is_header(each) for each in node.value.values()):
            self.bag.add(_unquoted(name, key, node))
            return False
        return leaves.pattern(key, place(node), self.bag) is not None

    def _rows(self, shape: Rows, node: Node, name: str) -> tuple[Taken, ...] | None:
        if not isinstance(node.value, tuple):
            return self.bag.add(wrong_type(name, shape, node))
        rows = [self.take(shape.table, row, name) for row in node.value]
        return tuple(row for row in rows if row is not None)

    def _list(self, shape: ListOf, node: Node, name: str) -> tuple[Any, ...] | None:
        if not isinstance(node.value, tuple):
            return self.bag.add(wrong_type(name, shape, node))
        found = [self.take(shape.each, element, name) for element in node.value]
        kept = tuple(each.value for each in found if each is not None)
        return kept if len(kept) == len(found) else None

    def _either(self, shape: Either, node: Node, name: str) -> Any:
        for each in shape.shapes:
            value = Reader(bag=Bag(), plugins=self.plugins).take(each, node, name)
            if value is not None:
                return value.value
        return self.bag.add(wrong_type(name, shape, node))

    def _strategies(self, shape: Strategies, node: Node, name: str) -> dict[str, Taken] | None:
        """Strategy name -> its PluginTable."""
        if not isinstance(node.value, dict):
            return self.bag.add(wrong_type(name, shape, node))
        taken: dict[str, Taken] = {}
        for key, inner in node.value.items():
            written = Written(value=key, span=place(inner), key=place(inner))
            loaded = self._load("strategy", self.plugins.strategies, written)
            if loaded is None:
                continue
            before = len(self.bag)
            values = self.table(loaded.table, inner, _path("strategy", key))
            made = None if values is None or len(self.bag) > before else self._plugin(loaded, written, values, inner)
            if made is not None:
                taken[key] = Taken(value=made, node=inner)
        return taken

    def _pipeline(self, shape: Schedule, node: Node, name: str) -> dict[str, Taken] | None:
        """Shared keys by name, and the schedule's PluginTable as `schedule`."""
        if not isinstance(node.value, dict):
            return self.bag.add(wrong_type(name, shape, node))
        shared, named = shape.shared.keys, node.value.get("schedule")
        word = None if named is None else self.take(shared["schedule"].shape, named, "schedule")
        loaded = word and self._load("schedule", self.plugins.schedules, word.written)
        if word is None or loaded is None:
            judged = {key: each for key, each in node.value.items() if key in shared or near(key, shared)}
            return self.table(shape.shared, replace(node, value=judged), name)
        before = len(self.bag)
        values = self.table(joined(shape.shared, loaded.table), node, name)
        if values is None or len(self.bag) > before:
            return None
        fields = {key: value for key, value in values.items() if key in loaded.table.keys}
        made = self._plugin(loaded, word.written, fields, node)
        return None if made is None else {**values, "schedule": Taken(value=made, node=word.node)}

    def _load(self, kind: str, registry: Registry, name: Written[str]) -> Loaded | None:
        """The plugin behind a name."""
        known = registry.names()
        if name.value not in known:
            return self.bag.add(unknown_plugin(kind, name.value, name.span, known, quoted=kind == "schedule"))
        try:
            return load(registry, name.value)
        except PluginError as error:
            return self.bag.add(plugin_broken(str(error), name.span))

    def _plugin(
        self, loaded: Loaded, name: Written[str], values: Mapping[str, Taken], node: Node
    ) -> PluginTable | None:
        """The plugin, built from values that its fields accept."""
        try:
            made = build(loaded, {key: value.value for key, value in values.items()})
        except RefusedError as error:
            message = f"`{name.value}`: {error}"
            return self.bag.add(Diagnostic(code="bad-value", message=message, label=Label(span=name.span)))
        except PluginError as error:
            return self.bag.add(plugin_broken(str(error), name.span))
        fields = {key: value.written for key, value in values.items()}
        return PluginTable(name=name, plugin=made, fields=fields, span=node.span)


def _path(name: str, key: str) -> str:
    """The name of an inner table, as a header spells it."""
    part = key if re.fullmatch("[A-Za-z0-9_-]+", key) else f'"{key}"'
    return f"{name}.{part}" if name else part


def _where(name: str) -> str:
    return f"`[{name}]`" if name else "the spec"


def _is_header(node: Node) -> bool:
    """True for a table that is not written in braces."""
    return isinstance(node.value, dict) and not node.span.text.startswith("{")


def _unquoted(name: str, key: str, node: Node) -> Diagnostic:
    """`[at.layers.0]` instead of `[at."layers.0"]`: TOML splits a bare name at its dots."""
    parts = [key]
    while any(_is_header(each) for each in node.value.values()):
        key, node = next((key, each) for key, each in node.value.items() if _is_header(each))
        parts.append(key)
    fix = f'[{name}."{".".join(parts)}"]'
    header = node.span.text.startswith("[") and '"' not in node.span.text
    return Diagnostic(
        code="bad-pattern",
        message=f"a pattern with dots stands in quotes under `[{name}]`",
        label=Label(span=node.span),
        help=(offer(f"write `{fix}`", node.span, fix),) if header else (),
    )
