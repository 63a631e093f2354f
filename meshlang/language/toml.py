"""TOML text -> a tree of values, each with its place.

tomli gives the values and decides what is TOML. `plain(scan(source, bag)) == tomli.loads(text)`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

import tomli

from ..diagnostics import Bag, Diagnostic, Edit, Help, Label
from ..source import MOST_BYTES, Source, Span
from .spans import MOST_NESTING, MOST_VALUES, DeepError, ManyError, Mark, ScanError, Scanner, TwiceError

#: TOML asks for this range; Python would read any.
LARGEST = 2**63 - 1
SMALLEST = -(2**63)
#: What some editors begin a UTF-8 file with; TOML knows no such character.
MARK = "\ufeff"


@dataclass(frozen=True, kw_only=True)
class Node:
    """A value and its place.

    Attributes:
        value: dict of nodes for a table, tuple of nodes for an array, tomli's value otherwise.
        key: where its key stands; for a table with a header, the part of the key inside it.
        span: the value's text; for a table with a header, that header; for a table that only
            longer dotted names made, the first of these names or headers.
        explicit: false for a table that only headers of its inner tables made.
        preset: true when it stands in a preset of meshlang's.
    """

    value: Any
    key: Span | None
    span: Span
    explicit: bool = True
    preset: bool = False


def plain(node: Node) -> Any:
    """The value without places, as tomli gives it."""
    if isinstance(node.value, dict):
        return {name: plain(inner) for name, inner in node.value.items()}
    if isinstance(node.value, tuple):
        return [plain(inner) for inner in node.value]
    return node.value


def scan(source: Source, bag: Bag, *, preset: bool = False) -> Node | None:
    """The tree of a text, or None and one finding `syntax`, `not-utf8` or `too-large`."""
    if source.too_large:
        bag.add(_too_large(source.span(0, len(source.text)), f"has more than {MOST_BYTES >> 20} MiB"))
        return None
    if source.undecoded is not None:
        span = source.span(source.undecoded, source.undecoded + 1)
        message = f"the text is not UTF-8: line {span.line} has bytes that are no character"
        bag.add(Diagnostic(code="not-utf8", message=message, label=Label(span=span, text="first such byte")))
        return None
    if source.text.startswith(MARK):
        bag.add(_marked(source))
        return None
    try:
        _counted(source)
        values = tomli.loads(source.text)
        mark = Scanner(source).read()
    except tomli.TOMLDecodeError as error:
        bag.add(_syntax(source, error))
        return None
    except ManyError as stop:
        span = source.span(stop.offset, min(stop.offset + 1, len(source.text)))
        bag.add(_too_large(span, f"has more than {MOST_VALUES} keys and values"))
        return None
    except (RecursionError, DeepError):
        bag.add(_too_deep(source))
        return None
    except ValueError:
        bag.add(_too_long(source))
        return None
    node = _node(mark, values, preset)
    return node if _fits(node, bag) else None


def _counted(source: Source) -> None:
    """Before tomli reads it: no more values, and no deeper, than a spec has.

    Raises:
        ManyError, DeepError: there are more. What else is wrong, tomli says.
    """
    try:
        Scanner(source).read()
    except (ManyError, DeepError):
        raise
    except (ScanError, RecursionError):
        return


def _too_large(span: Span, message: str) -> Diagnostic:
    return Diagnostic(
        code="too-large",
        message=f"{span.source.name} {message}",
        label=Label(span=span),
        notes=("no spec and no card is so large: is it the right file?",),
    )


def _node(mark: Mark, value: Any, preset: bool) -> Node:
    """Places and values as one tree."""
    inner: Any = value
    if isinstance(mark.inner, dict):
        assert mark.inner.keys() == value.keys(), f"{mark.span}: {mark.inner.keys()} are not {value.keys()}"
        inner = {name: _node(each, value[name], preset) for name, each in mark.inner.items()}
    elif isinstance(mark.inner, list):
        assert len(mark.inner) == len(value), f"{mark.span}: {len(mark.inner)} elements are not {len(value)}"
        inner = tuple(_node(each, one, preset) for each, one in zip(mark.inner, value, strict=True))
    return Node(value=inner, key=mark.key, span=mark.span, explicit=mark.explicit, preset=preset)


def _fits(node: Node, bag: Bag) -> bool:
    """True when every whole number has 64 bits; each other one is a finding."""
    if isinstance(node.value, (dict, tuple)):
        inner = node.value.values() if isinstance(node.value, dict) else node.value
        return sum(not _fits(each, bag) for each in inner) == 0
    if not isinstance(node.value, int) or SMALLEST <= node.value <= LARGEST:
        return True
    bag.add(_finding("a whole number does not fit into 64 bits", node.span, f"beyond {SMALLEST} .. {LARGEST}"))
    return False


def _finding(message: str, span: Span, text: str = "", **more: Any) -> Diagnostic:
    return Diagnostic(code="syntax", message=message, label=Label(span=span, text=text), **more)


def _marked(source: Source) -> Diagnostic:
    """A byte order mark before the text."""
    span = source.span(0, len(MARK))
    offer = Help(text="leave it out: save the file as UTF-8 without it", edits=(Edit(span=span, text=""),))
    return _finding("the text begins with a byte order mark, and TOML has none", span, help=(offer,))


def _too_deep(source: Source) -> Diagnostic:
    """More levels than are read; the scanner meets them before tomli does."""
    try:
        Scanner(source).read()
    except ScanError as stop:
        span = source.span(stop.offset, min(stop.offset + 1, len(source.text)))
        return _finding(f"tables and arrays are nested deeper than {MOST_NESTING} levels", span)
    raise AssertionError("tomli nests deeper than the scanner")


def _too_long(source: Source) -> Diagnostic:
    """Python refuses to read a decimal number of thousands of digits."""
    found = re.search(r"[0-9][0-9_]{4000,}", source.text)
    start, end = found.span() if found else (0, 0)
    return _finding("a whole number does not fit into 64 bits", source.span(start, end), f"{end - start} digits")


def _syntax(source: Source, error: tomli.TOMLDecodeError) -> Diagnostic:
    """tomli's error in words of our own, at its line and column."""
    at = source.offset(error.lineno, error.colno)
    if error.msg.startswith(("Cannot", "Duplicate")):
        twice = _twice(source, at, error.msg)
        if twice is not None:
            return twice
    if error.msg == "Invalid value":
        return _no_value(source, at)
    span = source.span(at, min(at + 1, len(source.text)))
    return _finding(_message(error.msg), span, "" if span.text else "the text ends here")


def _twice(source: Source, at: int, named: str) -> Diagnostic | None:
    """A key set, or a table described, in two places; shows both. None when only one is found."""
    scanner = Scanner(source)
    try:
        mark = scanner.read(end=at)
    except TwiceError as twice:
        label = Label(span=twice.first, text="first set here")
        message = f"`{twice.key.text}` is set twice"
        return _finding(message, twice.key, "and set again here", labels=(label,))
    except ScanError:
        return None
    names = re.search(r"\(.*\)$", named)
    for name in ast.literal_eval(names[0]) if names else ():
        while isinstance(mark.inner, list):
            mark = mark.inner[-1]
        if mark.inner is None or name not in mark.inner:
            return None
        mark = mark.inner[name]
    start = source.offset(source.position(at)[0], 1)
    label = Label(span=mark.key or mark.span, text="first described here")
    message = f"the table `{(mark.key or mark.span).text}` is described in two places"
    return _finding(message, source.span(start, max(at, start + 1)), "and again here", labels=(label,))


def _no_value(source: Source, at: int) -> Diagnostic:
    """Text where a value should be; a bare word is offered in quotes."""
    found = re.compile(r"[^\s,\]}#=\"']*").match(source.text, at)
    end = found.end() if found else at
    span = source.span(at, end if end > at else min(at + 1, len(source.text)))
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./:*-]*", span.text) is None:
        message = "a value is missing" if not span.text.strip() else f"{span.text!r} begins no TOML value"
        return _finding(message, span)
    if span.text.lower() in ("true", "false"):
        fix, message = span.text.lower(), f"`{span.text}` is no TOML value; `true` and `false` are lower case"
    else:
        fix, message = f'"{span.text}"', f"`{span.text}` is no TOML value; a word stands in quotes"
    offer = Help(text=f"write {fix}", edits=(Edit(span=span, text=fix),))
    return _finding(message, span, help=(offer,))


_WORDS = {
    "Invalid statement": "a statement begins with a key, or with `[` for a table",
    "Expected newline or end of document after a statement": "more text after a complete statement",
    "Expected '=' after a key in a key/value pair": "`=` is missing after a key",
    "Invalid initial character for a key part": "a key is missing here; one of other than A-Z a-z 0-9 _ - needs quotes",
    "Unclosed array": "`,` or `]` is missing in an array",
    "Unclosed inline table": "`,` or `}` is missing in an inline table",
    "Unterminated string": "a string is not closed",
    "Unescaped '\\' in a string": "a `\\` in a string begins no known escape; `\\\\` is a backslash",
    "Invalid hex value": "an escape lacks hexadecimal digits",
    "Escaped character is not a Unicode scalar value": "an escape names no Unicode character",
    "Expected ']' at the end of a table declaration": "`]` is missing after a table's name",
    "Expected ']]' at the end of an array declaration": "`]]` is missing after a table's name",
    "Invalid date or datetime": "a date or time that no calendar has",
    'Expected "\'"': "a string is not closed",
    "Expected \"'''\"": "a string is not closed",
    "Illegal character '\\n'": "a string is not closed on its line",
    "Found invalid character '\\n'": "a string is not closed on its line",
}


def _message(text: str) -> str:
    """tomli's words, in the house's."""
    if text in _WORDS:
        return _WORDS[text]
    stray = re.match(r"(?:Illegal|Found invalid) character (.*)", text)
    if stray is not None:
        return f"the character {stray[1]} may not stand here"
    return re.sub(r"[Ii]nvalid", "unknown", text[:1].lower() + text[1:])
