"""A spec's text in one order and with one spacing; comments and meaning stay.

    tables      in the language's order; `[a.b]` goes where `a` goes, and tables of one `a` stay in their order
    keys        of the language in its order; names that the user chose stay as written, before or after those
    comments    stay above the line that they stand above; the first block of a file stays first
    blanks      `key = value  # comment`; one empty line before a table, elsewhere at most one and none at an end
    values      as they are written; blanks inside an array or an inline table of one line are evened

formatted(formatted(text)) == formatted(text), and tomli reads the same values from a text and its formatted one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import tomli
import tomlkit
from tomlkit.items import AoT, Comment, Item, Table, Whitespace

from .compiler import Request, load
from .diagnostics import SpecError
from .language.shape import Anything, Rows, Schedule, Shape
from .language.shape import Table as Known
from .language.tables import ROOT
from .source import Source, Span

if TYPE_CHECKING:
    from tomlkit.container import Container
    from tomlkit.items import Key


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A line of the text: a header or statement with the names of its `path`, else a comment or an empty line.

    `above` are the comments that go with it, "" where a line is empty.
    """

    text: str
    path: tuple[str, ...] = ()
    header: bool = False
    above: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Section:
    """The statements under a header, or before the first one, and the comments after them."""

    header: _Line | None = None
    lines: tuple[_Line, ...] = ()
    below: tuple[str, ...] = ()


def formatted(text: str) -> str:
    """The text of a spec, or of a file that specs include, in order.

    Args:
        text: TOML without a finding of the scanner.
    """
    lines = list(_lines(tomlkit.parse(text.replace("\r\n", "\n")), (), ()))
    count = next((i for i, line in enumerate(lines) if not line.text.startswith("#")), len(lines))
    title, apart = [line.text for line in lines[:count]], lines[count : count + 1] == [_Line(text="")]
    sections = sorted(_sections(lines[count:]), key=_section_rank)
    body = "\n".join(block for section in sections if (block := _written(section)))
    return "".join(f"{line}\n" for line in title) + ("\n" if title and body and apart else "") + body


def _lines(container: Container, path: tuple[str, ...], names: tuple[str, ...]) -> Iterator[_Line]:
    """Every line in the order of the text; `names` is `path` as written."""
    for key, item in container.body:
        if isinstance(item, Whitespace):
            yield from (_Line(text="") for _ in range(item.s.count("\n")))
        elif isinstance(item, Comment):
            yield _Line(text=item.trivia.comment.rstrip())
        elif key is not None:
            yield from _entry(key, item, (*path, key.key), (*names, key.as_string().strip()))


def _entry(key: Key, item: Item, path: tuple[str, ...], names: tuple[str, ...]) -> Iterator[_Line]:
    if isinstance(item, AoT):
        for table in item.body:
            yield _Line(text=_commented(f"[[{'.'.join(names)}]]", table), path=path, header=True)
            yield from _lines(table.value, path, names)
    elif isinstance(item, Table) and not key.is_dotted():
        if not item.is_super_table():
            yield _Line(text=_commented(f"[{'.'.join(names)}]", item), path=path, header=True)
        yield from _lines(item.value, path, names)
    else:
        for inner, value in _pairs(names[-1], item):
            yield _Line(text=_commented(f"{inner} = {_value(value.as_string())}", value), path=path)


def _pairs(name: str, item: Item) -> Iterator[tuple[str, Item]]:
    """(key as written without blanks, value); a dotted key comes as tables inside each other."""
    if not isinstance(item, Table):
        yield name, item
        return
    for key, inner in item.value.body:
        assert key is not None
        yield from _pairs(f"{name}.{key.as_string().strip()}", inner)


def _commented(text: str, item: Item) -> str:
    comment = item.trivia.comment.rstrip()
    return f"{text}  {comment}" if comment else text


_TOKEN = re.compile(
    r"""\"(?:\\.|[^"\\])*\"|'[^']*'|[\[\]{},=]|[0-9]{4}-[0-9]{2}-[0-9]{2}\ [0-9:.Z+-]+|[^\s\[\]{},="']+""", re.VERBOSE
)

#: Marks of one line, with the blanks that follow or surround them.
_SPACED = {",": ", ", "=": " = ", "{": "{ "}


def _value(text: str) -> str:
    """A value as written; blanks between the parts of one line are evened, and no comma ends an array."""
    if "\n" in text or text[:1] not in ("[", "{"):
        return text
    found = ""
    for token in map(str, _TOKEN.findall(text)):
        if token in ("]", "}"):
            found = found.rstrip(" ,") + (" " if token == "}" and not found.endswith("{ ") else "") + token
            found = found.replace("{ }", "{}") if token == "}" and found.endswith("{ }") else found
        else:
            found += _SPACED.get(token, token)
    return found


def _sections(lines: Sequence[_Line]) -> list[_Section]:
    """Lines by header; comments that touch a header go with it, those that touch no statement after them are below."""
    found, held = [_Section()], list[str]()
    for line in lines:
        if not line.path:
            held.append(line.text)
            continue
        if line.header:
            touching = next((i for i in range(len(held), 0, -1) if not held[i - 1]), 0)
            found[-1] = replace(found[-1], below=tuple(held[:touching]))
            found.append(_Section(header=replace(line, above=tuple(held[touching:]))))
        else:
            kept = (*found[-1].lines, replace(line, above=tuple(held)))
            found[-1] = replace(found[-1], lines=kept)
        held = []
    found[-1] = replace(found[-1], below=tuple(held))
    return found


def _section_rank(section: _Section) -> int:
    return _rank(section.header.path[0], ROOT) if section.header else -2


def _rank(name: str, table: Known | None) -> int:
    """Where a key goes; free names go before the language's own, and keys of a plugin after."""
    if table is None:
        return 0
    order = list(table.keys)
    return order.index(name) if name in order else -1 if table.free is not None else len(order)


def _written(section: _Section) -> str:
    """The text of a section, without empty lines at its ends; no text when nothing is in it."""
    path = section.header.path if section.header else ()
    table = _table(path)
    lines = sorted(section.lines, key=lambda line: _rank(line.path[len(path)], table))
    rows = [*section.header.above, section.header.text] if section.header else []
    for line in lines:
        rows += [*line.above, line.text] if line is not lines[0] else [*_stripped(line.above), line.text]
    rows += section.below
    kept = [row for i, row in enumerate(rows) if row or (i and rows[i - 1])]
    while kept and not kept[-1]:
        kept.pop()
    while kept and not kept[0]:
        kept.pop(0)
    return "".join(f"{row}\n" for row in kept)


def _stripped(above: tuple[str, ...]) -> tuple[str, ...]:
    """Without empty lines before the first comment."""
    first = next((i for i, row in enumerate(above) if row), len(above))
    return above[first:]


def _table(path: tuple[str, ...]) -> Known | None:
    """The keys of the table at a path; None where the language names none."""
    shape: Shape | None = ROOT
    for name in path:
        shape = ROOT if isinstance(shape, Anything) else shape
        if not isinstance(shape, Known):
            return None
        shape = _inner(shape.keys[name].shape if name in shape.keys else shape.free)
    return ROOT if isinstance(shape, Anything) else shape if isinstance(shape, Known) else None


def _inner(shape: Shape | None) -> Shape | None:
    """The table that stands under a header of this shape."""
    if isinstance(shape, Rows):
        return shape.table
    return shape.shared if isinstance(shape, Schedule) else shape


#: What of a Spec stands in the order of lines, which says nothing.
_UNORDERED = ("mesh", "rules", "strategies", "uneven")


def meaning(source: Source) -> tuple[Any, Any]:
    """What a text says: its values, and the Spec that is read from it (None where findings are), without places."""
    values = _plain(tomli.loads(source.text))
    try:
        spec = load(Request(source=source))
    except SpecError:
        return values, None
    read = {each.name: _plain(getattr(spec, each.name)) for each in fields(spec)}
    return values, {name: sorted(read[name], key=repr) if name in _UNORDERED else read[name] for name in read}


def _plain(value: Any) -> Any:
    """A value as comparable data: keys sorted, types told apart, no place in a text."""
    if isinstance(value, (Span, Source)):
        return None
    if isinstance(value, Mapping):
        return sorted((name, _plain(inner)) for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if is_dataclass(value):
        return [type(value).__name__, *(_plain(getattr(value, each.name)) for each in fields(value))]
    return type(value).__name__, repr(value)
