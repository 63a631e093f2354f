"""Values that are no tables: one function a shape, node -> value, or None and a finding."""

from __future__ import annotations

import datetime
import re
from fractions import Fraction
from math import isfinite
from typing import Any

from ..diagnostics import Bag, Diagnostic, Label
from ..source import Span
from .files import VERSION
from .findings import bad_value, near_words, offer, repeated, wrong_type
from .pattern import Pattern, PatternError
from .shape import (
    Axes,
    AxisSize,
    Bytes,
    Choice,
    Flags,
    Function,
    Glob,
    Kind,
    Names,
    Real,
    Text,
    Truth,
    Version,
    Whole,
    expected,
)
from .spec import Written
from .toml import Node

#: Bytes of each unit of memory.
UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
#: How a function of a module is spelled, and how a flag is.
FUNCTION = "[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*"
FLAG = "[A-Za-z_][A-Za-z0-9_-]*([.][A-Za-z_][A-Za-z0-9_-]*)*"


def whole(shape: Whole, node: Node, name: str, bag: Bag) -> int | None:
    """A whole number in its range; `true` is none."""
    if type(node.value) is not int:
        return bag.add(wrong_type(name, shape, node))
    low, high = shape.least, shape.most
    if (low is not None and node.value < low) or (high is not None and node.value > high):
        return bag.add(_outside(name, node, low, high))
    return node.value


def real(shape: Real, node: Node, name: str, bag: Bag) -> float | None:
    """A finite number in its range."""
    if type(node.value) not in (int, float):
        return bag.add(wrong_type(name, shape, node))
    low, high = shape.low, shape.high
    if not isfinite(node.value):
        return bag.add(bad_value(f"`{name}` is no finite number", node))
    if (low is not None and node.value < low) or (high is not None and node.value > high):
        return bag.add(_outside(name, node, low, high))
    if shape.above and node.value == low:
        return bag.add(bad_value(f"`{name}` = {node.span.text} holds whatever is planned: it promises nothing", node))
    return float(node.value)


def _outside(name: str, node: Node, low: float | None, high: float | None) -> Diagnostic:
    bound = f"less than {low}" if low is not None and node.value < low else f"more than {high}"
    return bad_value(f"`{name}` = {node.value} is {bound}", node)


def truth(shape: Truth, node: Node, name: str, bag: Bag) -> bool | None:
    """`true` or `false`."""
    return node.value if isinstance(node.value, bool) else bag.add(wrong_type(name, shape, node))


def text(shape: Text, node: Node, name: str, bag: Bag) -> str | None:
    """A string that says something."""
    if not isinstance(node.value, str):
        return bag.add(wrong_type(name, shape, node))
    if not node.value.strip():
        return bag.add(bad_value(f"`{name}` is empty", node))
    return node.value


def function(shape: Function, node: Node, name: str, bag: Bag) -> str | None:
    """The import path of a function."""
    if not isinstance(node.value, str):
        return bag.add(wrong_type(name, shape, node))
    if re.fullmatch(FUNCTION, node.value) is None:
        return bag.add(bad_value(f"`{name}` takes {expected(shape)}, not {node.span.text}", node))
    return node.value


def choice(shape: Choice, node: Node, name: str, bag: Bag) -> Any:
    """One of the words."""
    kinds = {type(word) for word in shape.words}
    if type(node.value) not in kinds:
        return bag.add(wrong_type(name, shape, node))
    if node.value not in shape.words:
        words = [word for word in shape.words if isinstance(word, str)]
        fix = near_words(node.value, words, node.span) if isinstance(node.value, str) else ()
        note = "known: " + ", ".join(map(str, shape.words))
        return bag.add(bad_value(f"`{name}` knows no {node.span.text}", node, notes=(note,), help=fix))
    return node.value


def version(shape: Version, node: Node, name: str, bag: Bag) -> int | None:
    """The version that this reader speaks."""
    if type(node.value) is not int:
        return bag.add(wrong_type(name, shape, node))
    if node.value != VERSION:
        message = f"version {node.value} of the language is not known; this reader speaks {VERSION}"
        fix = (offer(f"`{name} = {VERSION}`", node.span, str(VERSION)),)
        return bag.add(Diagnostic(code="unknown-version", message=message, label=Label(span=node.span), help=fix))
    return node.value


def memory(shape: Bytes, node: Node, name: str, bag: Bag) -> int | None:
    """Bytes, of a number and a unit."""
    if not isinstance(node.value, str):
        return bag.add(wrong_type(name, shape, node))
    parts = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([A-Za-z]*)\s*", node.value, re.ASCII)
    if parts is None or parts[2] not in UNITS:
        fix = ()
        if parts is not None:
            units = [unit for unit in UNITS if unit.lower() == parts[2].lower()]
            fix = tuple(offer(f'"{parts[1]} {unit}"', node.span, f'"{parts[1]} {unit}"') for unit in units)
        message = f"`{name}` is no amount of memory; a number and a unit are"
        return bag.add(bad_value(message, node, notes=("units: " + ", ".join(UNITS),), help=fix))
    amount = int(Fraction(parts[1]) * UNITS[parts[2]])
    return amount if amount > 0 else bag.add(bad_value(f"`{name}` is less than one byte", node))


def axis_size(shape: AxisSize, node: Node, name: str, bag: Bag) -> int | str | None:
    """A size of at least 1, or "rest"."""
    if isinstance(node.value, str) and not node.value.isdecimal():
        if node.value == "rest":
            return node.value
        fix = near_words(node.value, ["rest"], node.span)
        return bag.add(bad_value(f'`{name}` takes {expected(shape)}, not "{node.value}"', node, help=fix))
    if type(node.value) is not int:
        return bag.add(wrong_type(name, shape, node))
    return whole(Whole(least=1), node, name, bag)


def axes(shape: Axes, node: Node, name: str, bag: Bag) -> tuple[Written[str], ...] | None:
    """The axes that cut a dimension, outer first; () is "whole"."""
    if isinstance(node.value, tuple):
        if not node.value:
            fix = offer('write "whole"', node.span, '"whole"')
            return bag.add(bad_value(f"`{name}` lists no axis", node, help=(fix,)))
        return _words(shape, node, name, bag)
    if not isinstance(node.value, str):
        return bag.add(wrong_type(name, shape, node))
    if not node.value:
        return bag.add(bad_value(f"`{name}` is empty", node))
    return () if node.value == "whole" else (_written(node, node.key or node.span),)


def names(shape: Names, node: Node, name: str, bag: Bag) -> tuple[Written[str], ...] | None:
    """Names, none twice, at least one."""
    if not isinstance(node.value, tuple):
        return bag.add(wrong_type(name, shape, node))
    if not node.value:
        return bag.add(bad_value(f"`{name}` lists no name", node))
    return _words(shape, node, name, bag)


def _words(shape: Axes | Names, node: Node, name: str, bag: Bag) -> tuple[Written[str], ...] | None:
    """The elements of an array of axis names."""
    seen: dict[str, Span] = {}
    before = len(bag)
    for element in node.value:
        word = element.value
        if not isinstance(word, str):
            bag.add(wrong_type(name, shape, element))
        elif word == "whole":
            bag.add(bad_value('"whole" stands alone, not in an array', element))
        elif not word:
            bag.add(bad_value(f"`{name}` has an empty name", element))
        elif word in seen:
            bag.add(repeated(name, word, seen[word], element.span))
        else:
            seen[word] = element.span
    if len(bag) > before:
        return None
    return tuple(_written(element, node.key or node.span) for element in node.value)


def _written(node: Node, key: Span) -> Written[Any]:
    return Written(value=node.value, span=node.span, key=key)


def glob(shape: Glob, node: Node, name: str, bag: Bag) -> Pattern | None:
    """A pattern."""
    if not isinstance(node.value, str):
        return bag.add(wrong_type(name, shape, node))
    return pattern(node.value, node.span, bag)


def pattern(written: str, span: Span, bag: Bag) -> Pattern | None:
    """The pattern of a string or a key, or a finding at the letters it is about."""
    try:
        return Pattern.parse(written)
    except PatternError as error:
        place = span
        if span.text[1:-1] == written and span.text[0] in "\"'" and error.end > error.start:
            place = span.source.span(span.start + 1 + error.start, span.start + 1 + error.end)
        return bag.add(Diagnostic(code="bad-pattern", message=error.message, label=Label(span=place)))


def kind(shape: Kind, node: Node, name: str, bag: Bag) -> str | None:
    """A placement, without blanks."""
    if not isinstance(node.value, str):
        return bag.add(wrong_type(name, shape, node))
    if re.fullmatch(r"R|S\([0-9]{1,3}\)|stored", node.value, re.ASCII) is None:
        meant = _meant_kind(node.value)
        known = ["R", "stored"]
        fix = (offer(f'"{meant}"', node.span, f'"{meant}"'),) if meant else near_words(node.value, known, node.span)
        message = f'`{name}` knows no "{node.value}"; "R", "S(0)", "S(1)", ... and "stored" are known'
        return bag.add(bad_value(message, node, help=fix))
    return node.value


def _meant_kind(written: str) -> str | None:
    """A placement as plans print it, or as torch does: "stored S(0)", "Shard(dim=1)", "Replicate()"."""
    if written.startswith("stored"):
        return "stored"
    if written.lower().startswith("repl"):
        return "R"
    dim = re.fullmatch(r"[Ss][^0-9]*([0-9]{1,3})[^0-9]*", written, re.ASCII)
    return f"S({dim[1]})" if dim else None


def flags(shape: Flags, node: Node, name: str, bag: Bag) -> dict[str, Written[Any]] | None:
    """Dotted flag -> value; tables inside tables are flattened."""
    if not isinstance(node.value, dict):
        return bag.add(wrong_type(name, shape, node))
    taken: dict[str, Written[Any]] = {}
    _flatten(node, "", taken, bag)
    return taken


def _flatten(table: Node, before: str, taken: dict[str, Written[Any]], bag: Bag) -> None:
    for name, node in table.value.items():
        dotted, key = (before + name).replace("-", "_"), node.key or node.span  # torchtitan reads both spellings
        if re.fullmatch(FLAG, name) is None:
            bag.add(_no_flag(name, key))
        elif isinstance(node.value, dict):
            _flatten(node, f"{dotted}.", taken, bag)
        elif not _is_flag(node):
            bag.add(
                bad_value(f"`{dotted}`: a flag takes a string, a number, true or false, or an array of these", node)
            )
        elif dotted in taken:
            label = Label(span=taken[dotted].key, text="first set here")
            bag.add(bad_value(f"`{dotted}` is set twice", node, "and again here", labels=(label,)))
        else:
            taken[dotted] = Written(value=_plain(node), span=node.span, key=key)


def _no_flag(name: str, key: Span) -> Diagnostic:
    """A key that torchtitan could not be told; offers the word inside it."""
    word = name.strip(" -")
    fix = (offer(f'write `"{word}"`', key, f'"{word}"'),) if re.fullmatch(FLAG, word) else ()
    message = f"`{name}` is no flag; `training.steps`, without dashes before it, is"
    return Diagnostic(code="bad-value", message=message, label=Label(span=key), help=fix)


def _plain(node: Node) -> Any:
    return tuple(_plain(each) for each in node.value) if isinstance(node.value, tuple) else node.value


def _is_flag(node: Node) -> bool:
    if isinstance(node.value, tuple):
        return all(_is_flag(each) for each in node.value)
    return not isinstance(node.value, (dict, datetime.date, datetime.time))
