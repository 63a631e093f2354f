"""Every table and key: of specs, of strategies, of schedules, of cards. Read from what the reader itself reads by."""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from meshlang.card.find import Cards
from meshlang.card.schema import card_schema
from meshlang.language import plugins
from meshlang.language.files import presets
from meshlang.language.shape import Anything, Key, Rows, Strategies, Table, expected
from meshlang.language.shape import Schedule as Pipeline
from meshlang.language.tables import PIPELINE
from meshlang.language.tables import ROOT as SPEC
from meshlang.registry import Plugins, Registry
from meshlang.strategy import Schedule

from .markdown import ROOT, code, fenced, page, paragraphs, table


def pages() -> dict[str, str]:
    """The pages on keys."""
    installed = Plugins()
    return {
        "spec.md": _spec(),
        "strategies.md": _plugins(installed.strategies, "Strategies", "[strategy.NAME]", _strategy),
        "schedules.md": _plugins(installed.schedules, "Schedules", "schedule = NAME", _schedule),
        "presets.md": _presets(),
        "cards.md": _cards(),
    }


def _spec() -> str:
    top = {name: key for name, key in SPEC.keys.items() if not _inner(key)}
    parts = [
        "Every table and key, in the order in which the reader knows them. An editor gets them from `meshlang schema`.",
        "## Outside of tables\n\n" + _keys(top),
    ]
    for name, key in SPEC.keys.items():
        if _inner(key):
            parts += _table(f"[[{name}]]" if isinstance(key.shape, Rows) else f"[{name}]", key)
    return page("Specs", *parts)


def _inner(key: Key) -> Table | None:
    """The table that a key holds."""
    shape = key.shape
    if isinstance(shape, Pipeline):
        return shape.shared
    if isinstance(shape, Strategies):
        return Table()
    return shape.table if isinstance(shape, Rows) else shape if isinstance(shape, Table) else None


def _table(title: str, key: Key) -> Iterator[str]:
    """A section: what the table is for, its keys, and what any other key holds."""
    inner = _inner(key)
    assert inner is not None
    yield f"## {title}\n\n{_sentence(key.says)}"
    if inner.keys:
        yield _keys(inner.keys)
    if isinstance(key.shape, Strategies):
        yield "`[strategy.NAME]` has the keys of that [strategy](strategies.md)."
    if isinstance(key.shape, Pipeline):
        yield "Further keys are those of the [schedule](schedules.md) that is named."
    if inner.free is not None:
        yield from _free(inner)
    if used := _used(title.strip("[]")):
        yield "In use: " + ", ".join(f"[{name}](examples.md#{_anchor(name)})" for name in used) + "."


def _free(inner: Table) -> Iterator[str]:
    word = "pattern" if inner.globs else "key of your own"
    if isinstance(inner.free, Table):
        yield f"Each {word} holds a table."
        if inner.free.keys:
            yield _keys(inner.free.keys)
        if inner.free.free is not None:
            yield f"Any other key of it takes {expected(inner.free.free)}."
    else:
        assert inner.free is not None
        takes = "tables of a spec" if isinstance(inner.free, Anything) else expected(inner.free)
        yield f"Any {word} takes {takes}."


def _keys(keys: Mapping[str, Key]) -> str:
    rows = [
        (code(name), expected(key.shape), ("Required. " if key.required else "") + _sentence(key.says))
        for name, key in keys.items()
    ]
    return table(("key", "takes", "what it says"), rows)


def _sentence(says: str) -> str:
    """A key's words as a sentence, with what would be markup kept as it is."""
    text = says.replace("*", "\\*").replace("<", "\\<")
    word = text.partition(" ")[0]
    first = text[:1] if "_" in word or word.endswith(":") else text[:1].upper()
    return f"{first}{text[1:]}{'' if text.endswith(('.', '?')) else '.'}"


def _used(name: str) -> list[str]:
    """Examples that have a table, where not most of them have it."""
    every = sorted((ROOT / "examples").glob("*.toml"))
    found = [path.name for path in every if name in tomllib.loads(path.read_text(encoding="utf-8"))]
    return found[:4] if len(found) < len(every) / 2 else []


def _anchor(name: str) -> str:
    """As MyST makes it of a heading."""
    return name.replace(".", "").lower()


def _plugins(registry: Registry, title: str, where: str, more: Any) -> str:
    parts = [f"What is installed, under `{where}`. A field of the plugin is a key of its table."]
    for name in registry.names():
        loaded = plugins.load(registry, name)
        parts += [f"## {name}", paragraphs(inspect.getdoc(loaded.plugin)), *more(loaded), _fields(loaded)]
    return page(title, *parts)


def _strategy(loaded: plugins.Loaded) -> Iterator[str]:
    if places := loaded.plugin.places:
        yield f"It cuts {', '.join(map(code, places))} by itself."


def _schedule(loaded: plugins.Loaded) -> Iterator[str]:
    ops = loaded.plugin.ops
    if ops is None:
        yield "It can be planned, not launched."
    elif ":" in ops or "." in ops:
        yield "It runs on meshlang's own executor."
    elif ops == "csv":
        yield "torch runs the order that it says, action by action."
    else:
        yield f"It runs on torch's `{ops}`."


def _fields(loaded: plugins.Loaded) -> str:
    if not loaded.table.keys:
        return "It has no keys of its own."
    fields = {field.name: field for field in dataclasses.fields(loaded.plugin)}
    shared = PIPELINE.keys if issubclass(loaded.plugin, Schedule) else {}
    rows = [
        (
            code(name),
            expected(key.shape),
            "required" if key.required else _default(fields[name]),
            _sentence(_says(name, key, fields, shared)),
        )
        for name, key in loaded.table.keys.items()
    ]
    return table(("key", "takes", "default", "what it says"), rows)


def _says(name: str, key: Key, fields: Mapping[str, dataclasses.Field[Any]], shared: Mapping[str, Key]) -> str:
    """A field's own words; without them, those of the key that all schedules share."""
    return key.says if "says" in fields[name].metadata or name not in shared else shared[name].says


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING or field.default is None:
        return ""
    value = field.default
    return code(
        str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)
    )


def _presets() -> str:
    folder = ROOT / "meshlang" / "language" / "presets"
    parts = [
        'A preset is a file of rules that a spec lies over: `include = ["preset:fsdp"]`. It speaks of dimensions that '
        "most models have, and what a model lacks it passes over."
    ]
    for name in presets():
        parts += [f"## {name}", fenced((folder / f"{name}.toml").read_text(encoding="utf-8"), "toml")]
    return page("Presets", *parts)


def _cards() -> str:
    properties: dict[str, Any] = card_schema()["properties"]
    required = card_schema()["required"]
    rows = [
        (code(name), ("Required. " if name in required else "") + _sentence(rule["description"]))
        for name, rule in properties.items()
    ]
    boundary = properties["activation"]["additionalProperties"]["properties"]
    inner = [(code(name), _sentence(rule["description"])) for name, rule in boundary.items()]
    return page(
        "Cards",
        "A card names the dimensions of every tensor of an architecture. [Write a card](../howto/card.md) shows how.",
        "## Keys",
        table(("key", "what it says"), rows),
        "## [activation]",
        "Each module of `[activation]` holds:",
        table(("key", "what it says"), inner),
        "## Installed cards",
        table(("model", "dimensions that a spec may place"), _installed()),
    )


def _installed() -> Iterable[tuple[str, str]]:
    cards = Cards()
    for name in cards.names():
        path = cards.path(name)
        assert path is not None
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        for flavor, sizes in data["flavor"].items():
            words = [f"`{dim}` {size}" for dim, size in sizes.items() if dim != "tied"]
            yield code(f"{name}/{flavor}"), ", ".join(words)
