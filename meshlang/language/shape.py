"""What a key may hold, as data. The reader and the JSON Schema are both made from these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, kw_only=True)
class Whole:
    """A whole number, of at least `least` and at most `most`."""

    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, kw_only=True)
class Real:
    """A number, from `low` to `high`; `above` the first where that itself says nothing."""

    low: float | None = None
    high: float | None = None
    above: bool = False


@dataclass(frozen=True)
class Truth:
    """`true` or `false`."""


@dataclass(frozen=True)
class Text:
    """A string, not an empty one."""


@dataclass(frozen=True)
class Function:
    """A function by its import path, as package.module:function."""


@dataclass(frozen=True)
class Choice:
    """One of some words or numbers."""

    words: tuple[str | int, ...]


@dataclass(frozen=True)
class Version:
    """The version of the language."""


@dataclass(frozen=True)
class Bytes:
    """An amount of memory with its unit, such as "2 GiB"."""


@dataclass(frozen=True)
class AxisSize:
    """Ranks along an axis, or "rest"."""


@dataclass(frozen=True)
class Axes:
    """What cuts a dimension: an axis, axes from outer to inner, or "whole"."""


@dataclass(frozen=True)
class Names:
    """An array of names, none of them twice."""


@dataclass(frozen=True)
class Glob:
    """A pattern."""


@dataclass(frozen=True)
class Kind:
    """How a tensor sits on an axis: "R", "S(i)" or "stored"."""


@dataclass(frozen=True)
class Flags:
    """Flags of torchtitan's command line; tables inside tables are dotted names."""


@dataclass(frozen=True)
class Anything:
    """A table that is held against the language elsewhere: laid over the whole spec."""


@dataclass(frozen=True)
class ListOf:
    """An array of values of one shape."""

    each: Shape


@dataclass(frozen=True)
class Either:
    """A value of one of some shapes."""

    shapes: tuple[Shape, ...]


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key of a table."""

    shape: Shape
    says: str
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        keys: the keys with a meaning of their own.
        free: shape of every other key, or None when there is no other.
        globs: true when the other keys are patterns.
        least: what the other keys are called, or the keys where there are no other, when there must be one.
    """

    keys: Mapping[str, Key] = field(default_factory=dict)
    free: Shape | None = None
    globs: bool = False
    least: str = ""


@dataclass(frozen=True)
class Rows:
    """An array of tables."""

    table: Table


@dataclass(frozen=True)
class Strategies:
    """Tables by the name of a strategy plugin; the plugin's fields are their keys."""


@dataclass(frozen=True)
class Schedule:
    """`[pipeline]`: keys of every schedule, and the fields of the plugin that `schedule` names."""

    shared: Table


Shape: TypeAlias = (
    Whole
    | Real
    | Truth
    | Text
    | Function
    | Choice
    | Version
    | Bytes
    | AxisSize
    | Axes
    | Names
    | Glob
    | Kind
    | Flags
    | Anything
    | ListOf
    | Either
    | Table
    | Rows
    | Strategies
    | Schedule
)

_SAYS: Mapping[type, str] = {
    Truth: "`true` or `false`",
    Text: "a string",
    Function: 'a string such as "package.module:function"',
    Version: "the whole number 1",
    Bytes: 'a string such as "2 GiB"',
    AxisSize: 'a whole number or "rest"',
    Axes: 'an axis, an array of axes, or "whole"',
    Names: "an array of names",
    Glob: "a string with a pattern",
    Kind: 'one of "R", "S(i)", "stored"',
    Flags: "a table of flags",
    Anything: "a table",
    Rows: "an array of tables",
    Table: "a table",
    Strategies: "a table",
    Schedule: "a table",
}


def expected(shape: Shape) -> str:
    """What a key of this shape takes, to stand after "takes"."""
    if isinstance(shape, Whole):
        return "a whole number" + _range(shape.least, shape.most)
    if isinstance(shape, Real):
        return "a number" + _range(shape.low, shape.high)
    if isinstance(shape, Choice):
        words = [f'"{word}"' if isinstance(word, str) else str(word) for word in shape.words]
        return words[0] if len(words) == 1 else "one of " + ", ".join(words)
    if isinstance(shape, ListOf):
        return f"an array, each element {expected(shape.each)}"
    if isinstance(shape, Either):
        return " or ".join(expected(each) for each in shape.shapes)
    return _SAYS[type(shape)]


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low} to {high}"
    if low is not None:
        return f" of at least {low}"
    return f" of at most {high}" if high is not None else ""
