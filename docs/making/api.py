"""Python's side: signatures and docstrings, read from the source without running it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

from .markdown import ROOT, fenced, page, table

#: What a user of Python imports: module -> names.
PUBLIC: dict[str, tuple[str, tuple[str, ...]]] = {
    "meshlang.testing": (
        "For tests.",
        (
            "fake.fake_mesh",
            "fake.FakeMesh",
            "local.local_ranks",
            "local.LocalRanks",
            "placements.assert_follows_plan",
            "placements.assert_local_shapes",
            "placements.assert_placements",
        ),
    ),
    "meshlang.testing.contract": ("Laws that every plugin passes.", ("Case", "params")),
    "meshlang.compiler": ("From text to a plan, without torch.", ("Request", "load", "compile", "check")),
    "meshlang.plan.ir": ("What a plan holds.", ("Plan", "Tensor", "Edge", "Collective")),
    "meshlang.strategy": ("For authors of plugins.", ("Strategy", "Schedule", "Context")),
    "meshlang.runtime.titan": ("A plan in a recipe of torchtitan's.", ("apply",)),
    "meshlang.lowering.dtensor": ("A plan on a module of your own.", ("lower",)),
    "meshlang.lowering.mesh": ("The mesh of a plan, on devices.", ("device_mesh",)),
}


def pages() -> dict[str, str]:
    """One page of all public names."""
    package = griffe.load("meshlang", search_paths=[str(ROOT)], docstring_parser="google")
    parts: list[str] = ["Only `meshlang.testing`, `meshlang.runtime` and `meshlang.lowering` load torch."]
    for module, (says, names) in PUBLIC.items():
        parts += [f"## {module}", says]
        for name in names:
            parts += _entry(package[f"{module.removeprefix('meshlang.')}.{name}"], name.rpartition(".")[2])
    return {"python.md": page("Python", *parts)}


def _entry(found: Any, name: str) -> Iterator[str]:
    """A function, or a class with what is public in it."""
    yield f"### {name}"
    yield fenced(_signature(found, name), "python")
    yield from _doc(found)
    if found.is_class:
        for inner in found.members.values():
            if inner.is_function and not inner.name.startswith("_") and inner.docstring is not None:
                yield fenced(_signature(inner, f"{name}.{inner.name}"), "python")
                yield from _doc(inner)
        if rows := list(_fields(found)):
            yield table(("attribute", "type", "what it is"), rows)


def _fields(found: Any) -> Iterator[tuple[str, str, str]]:
    """Annotated attributes and properties."""
    said = {
        item.name: item.description
        for part in _sections(found)
        if part.kind.value == "attributes"
        for item in part.value
    }
    for inner in found.members.values():
        if inner.is_attribute and not inner.name.startswith("_") and (inner.annotation is not None):
            says = said.get(inner.name) or (inner.docstring.value.partition("\n")[0] if inner.docstring else "")
            yield f"`{inner.name}`", f"`{inner.annotation}`", _plain(says)


def _signature(found: Any, name: str) -> str:
    """As a person would write it; one parameter a line where the line is long."""
    if found.is_class:
        bases = ", ".join(str(base) for base in found.bases)
        return f"class {name}({bases})" if bases else f"class {name}"
    words = list(_parameters(found))
    returns = f" -> {found.returns}" if found.returns is not None else ""
    line = f"{name}({', '.join(words)}){returns}"
    return line if len(line) <= 100 else f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){returns}"


def _parameters(found: Any) -> Iterator[str]:
    keyword = False
    for each in found.parameters:
        if each.name in ("self", "cls"):
            continue
        kind = each.kind.value if each.kind is not None else ""
        if kind == "keyword-only" and not keyword:
            keyword = True
            yield "*"
        star = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        keyword = keyword or star == "*"
        kept = f"{star}{each.name}" + (f": {each.annotation}" if each.annotation is not None else "")
        yield kept if each.default is None or star else f"{kept} = {each.default}"


def _sections(found: Any) -> list[Any]:
    return found.docstring.parsed if found.docstring is not None else []


def _doc(found: Any) -> Iterator[str]:
    """A docstring: its words, then its arguments and what it raises as lists."""
    for part in _sections(found):
        kind = part.kind.value
        if kind == "text":
            yield _text(_listed(part.value, found) if found.is_class else part.value)
        elif kind == "parameters":
            yield "\n".join(f"- `{item.name}`: {_plain(item.description)}" for item in part.value)
        elif kind == "raises":
            yield "\n".join(f"- raises `{item.annotation}`: {_plain(item.description)}" for item in part.value)


def _listed(text: str, found: Any) -> str:
    """The text of a class, in which lines such as "axis: of the mesh" are a list."""
    names = "|".join(re.escape(name) for name in found.members)
    return re.sub(rf"^({names}): ", r"- `\1`: ", text, flags=re.MULTILINE) if names else text


def _text(text: str) -> str:
    """Paragraphs; an indented one is code."""
    from .markdown import paragraphs

    return paragraphs(_starred(text))


def _starred(text: str) -> str:
    return re.sub(r"(?<![`*])\*(?![`*])", r"\\*", text)


def _plain(text: str) -> str:
    """One line of Markdown."""
    return " ".join(_starred(text).split())
