"""Document -> Spec: every table by its shape, then the few laws between keys, then plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..diagnostics import Bag, Diagnostic, Label
from ..registry import Plugins
from ..source import Source, Span
from .findings import place, unknown_key
from .leaves import version
from .load import Document, machines
from .merge import over
from .pattern import Pattern
from .reader import Reader, Taken
from .shape import Version
from .spec import (
    AxisEntry,
    Check,
    Expect,
    Launch,
    Level,
    Pipeline,
    PlaceRule,
    Precision,
    Recompute,
    Sizes,
    Spec,
    Store,
    Topology,
    Written,
)
from .tables import ROOT
from .toml import Node

#: Machines of one spec: each is read as a spec of its own.
MOST_MACHINES = 32


def read(document: Document, bag: Bag, plugins: Plugins) -> Spec | None:
    """The Spec as written, or None with all findings of this stage in the bag.

    A spec of another version of the language is one finding: its keys mean other things.
    """
    given = document.root.value.get("meshlang")
    if given is not None and type(given.value) is int and version(Version(), given, "meshlang", bag) is None:
        return None
    found = Bag()
    tables = _tables(document.root, found, plugins)
    described = list(machines(document.root).values())
    for machine in described[:MOST_MACHINES]:
        _read_machine(machine, document.root, found, plugins)
    for machine in described[MOST_MACHINES : MOST_MACHINES + 1]:
        found.add(_too_many_machines(machine))
    for each in found:
        bag.add(each)
    if tables is None or len(found):
        return None
    others = tuple(name for name in machines(document.root) if name != document.on)
    return replace(_spec(tables, document.source), machines=others)


def _too_many_machines(node: Node) -> Diagnostic:
    message = f"`[topology.on]` describes more than {MOST_MACHINES} machines"
    return Diagnostic(code="too-large", message=message, label=Label(span=place(node)))


def _tables(root: Node, bag: Bag, plugins: Plugins) -> dict[str, Taken] | None:
    """Every table of a tree, held against its shape and the laws between keys."""
    tables = Reader(bag=bag, plugins=plugins).table(ROOT, root, "")
    if tables is not None and "mesh" in tables:
        _one_rest(tables["mesh"], bag)
    if tables is not None and "check" in tables:
        _names_differ(tables["check"], bag)
    return tables


def _names_differ(checks: Taken, bag: Bag) -> None:
    """No two checks have one name: pytest and a finding call them by it."""
    first: dict[str, Taken] = {}
    for row in checks.value:
        name = row.value.get("name")
        if name is not None and first.setdefault(name.value, name) is not name:
            bag.add(
                Diagnostic(
                    code="bad-value",
                    message=f"two checks are called `{name.value}`",
                    label=Label(span=name.node.span, text="and again here"),
                    labels=(Label(span=first[name.value].node.span, text="first here"),),
                )
            )


def _one_rest(mesh: Taken, bag: Bag) -> None:
    """At most one axis is as large as the ranks allow."""
    rests = [entry for entry in mesh.value.values() if entry.value == "rest"]
    for second in rests[1:]:
        first, name = rests[0].node, place(second.node).text
        bag.add(
            Diagnostic(
                code="two-rests",
                message=f'`{place(first).text}` and `{name}` are both "rest", and one axis may be',
                label=Label(span=second.node.span, text="and again here"),
                labels=(Label(span=first.span, text="first here"),),
            )
        )


def _read_machine(machine: Node, root: Node, bag: Bag, plugins: Plugins) -> None:
    """Hold one `[topology.on.NAME]` against the language: it is laid over the spec, then read."""
    own = {(span.source.name, span.start, span.end) for span in _spans(machine)}
    for name in ("meshlang", "include"):
        if name in machine.value:
            bag.add(_no_variant(name, machine.value[name]))
    topology = machine.value.get("topology")
    if topology is not None and isinstance(topology.value, dict) and "on" in topology.value:
        bag.add(_no_variant("on", topology.value["on"]))
    aside = Bag()
    _tables(over(machine, root), aside, plugins)
    for each in aside:
        labels = (each.label, *each.labels)
        if any((label.span.source.name, label.span.start, label.span.end) in own for label in labels):
            bag.add(each)


def _no_variant(name: str, node: Node) -> Diagnostic:
    return unknown_key("a machine of `[topology.on]`", name, node, (), None)


def _spans(node: Node) -> Iterator[Span]:
    """Every place inside a tree, without that of its root."""
    for inner in node.value.values() if isinstance(node.value, dict) else node.value:
        yield inner.span
        if inner.key is not None:
            yield inner.key
        if isinstance(inner.value, (dict, tuple)):
            yield from _spans(inner)


def _spec(tables: Mapping[str, Taken], source: Source) -> Spec:
    """Plain data of tables without findings."""
    mesh = tables["mesh"]
    return Spec(
        source=source,
        model=tables["model"].written,
        mesh=tuple(_axis(name, entry) for name, entry in mesh.value.items()),
        mesh_span=mesh.node.span,
        sizes=Sizes(**_written(tables["sizes"])) if "sizes" in tables else None,
        precision=Precision(**_written(tables.get("precision"))),
        topology=_topology(tables.get("topology")),
        rules=tuple(_rules(tables)),
        store=_store(tables["store"]) if "store" in tables else None,
        recompute=_recompute(tables["recompute"]) if "recompute" in tables else None,
        uneven=tuple(_uneven(tables.get("uneven"))),
        pipeline=_pipeline(tables["pipeline"]) if "pipeline" in tables else None,
        strategies=tuple(each.value for _, each in sorted(_inner(tables.get("strategy")).items())),
        expect=Expect(**_written(tables.get("expect"))),
        checks=tuple(_check(row) for row in tables["check"].value) if "check" in tables else (),
        launch=_launch(tables["launch"]) if "launch" in tables else None,
    )


def _inner(table: Taken | None) -> dict[str, Taken]:
    return {} if table is None else table.value


def _written(table: Taken | None) -> dict[str, Written[Any]]:
    return {name: each.written for name, each in _inner(table).items()}


def _value(table: Taken, name: str, otherwise: Any) -> Any:
    return table.value[name].value if name in table.value else otherwise


def _axis(name: str, entry: Taken) -> AxisEntry:
    size = None if entry.value == "rest" else entry.value
    return AxisEntry(name=name, size=size, span=entry.node.span, key=place(entry.node))


def _topology(table: Taken | None) -> Topology:
    if table is None:
        return Topology()
    ranks = table.value.get("ranks_per_node")
    return Topology(
        order=_value(table, "order", None),
        ranks_per_node=None if ranks is None else ranks.written,
        inside_node=_value(table, "inside_node", ()),
    )


def _rules(tables: Mapping[str, Taken]) -> Iterator[PlaceRule]:
    """Every line of `[place]`, `[within]` and `[at]`."""
    if "place" in tables:
        yield from _block("place", None, tables["place"])
    for name, block in _inner(tables.get("within")).items():
        yield from _block("within", Pattern.parse(name), block)
    for name, block in _inner(tables.get("at")).items():
        yield from _block("at", Pattern.parse(name), block)


def _block(level: Level, pattern: Pattern | None, block: Taken) -> Iterator[PlaceRule]:
    why = block.value["why"].written if level == "at" else None
    for name, entry in block.value.items():
        if level == "at" and name == "why":
            continue
        yield PlaceRule(
            level=level,
            pattern=pattern,
            name=name,
            axes=entry.value,
            span=entry.node.span,
            key=place(entry.node),
            why=why,
            preset=entry.node.preset,
            pattern_span=None if pattern is None else place(block.node),
        )


def _store(table: Taken) -> Store:
    after = table.value.get("after_forward")
    excepted = table.value.get("except")
    return Store(
        over=table.value["over"].value,
        after_forward=None if after is None else after.written,
        exceptions=() if excepted is None else excepted.value,
        exception_spans=() if excepted is None else tuple(each.span for each in excepted.node.value),
        span=table.node.span,
        key=place(table.node),
    )


def _recompute(table: Taken) -> Recompute:
    modules = table.value["modules"]
    return Recompute(
        modules=modules.value,
        pattern_spans=tuple(each.span for each in modules.node.value),
        span=table.node.span,
        key=place(modules.node),
    )


def _uneven(table: Taken | None) -> Iterator[Written[str]]:
    for name, entry in _inner(table).items():
        yield Written(value=name, span=entry.node.span, key=place(entry.node))


def _pipeline(table: Taken) -> Pipeline:
    shared = {
        name: table.value[name].written
        for name in ("microbatches", "subsequences", "chunks", "split")
        if name in table.value
    }
    return Pipeline(schedule=table.value["schedule"].value, span=table.node.span, **shared)


def _check(row: Taken) -> Check:
    return Check(
        name=row.value["name"].written,
        tensor=row.value["tensor"].value,
        tensor_span=row.value["tensor"].node.span,
        expect=_written(row.value["expect"]),
        span=row.node.span,
    )


def _launch(table: Taken) -> Launch:
    named = {name: table.value[name].written for name in ("recipe", "ranks") if name in table.value}
    return Launch(overrides=_value(table, "set", {}), span=table.node.span, **named)
