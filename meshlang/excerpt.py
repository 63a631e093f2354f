"""Lines of a source with marks under the places that a finding speaks of.

Whatever stands in the source, a line stays one line of a terminal and the marks stay under their
letters: tabs are four blanks, wide letters count two columns, and characters that would move the
cursor or reorder the text are shown as escapes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .diagnostics import Label

#: Columns of a source line that are shown; of a longer one, the part around its first mark.
COLUMNS = 100
#: A name in a message that is longer is cut: what of its begin and its end is shown.
_BEGIN, _END = 120, 40
_LONG = re.compile(r"`[^`\n]{240,}`|[^\s`]{240,}")
_ELLIPSIS = "..."
_ESCAPED = ("Cc", "Cf", "Cs", "Zl", "Zp")

Paint = Callable[[str, str], str]


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Columns `start` up to `end` of one line, from 0, and what to say of them."""

    start: int
    end: int
    text: str
    main: bool


def glyph(char: str) -> str:
    """What a terminal is given for one character of a source."""
    if char == "\t":
        return " " * 4
    if unicodedata.category(char) not in _ESCAPED:
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def safe(text: str) -> str:
    """A text of one line that moves no cursor."""
    return "".join(" " if char == "\t" else glyph(char) for char in text)


def brief(text: str) -> str:
    """A text of one line that moves no cursor, its longest names cut in their middle."""
    return safe(cut(text))


def cut(text: str) -> str:
    """A text whose longest names are cut in their middle."""
    return _LONG.sub(_middle, text)


def _middle(match: re.Match[str]) -> str:
    word = match[0]
    return f"{word[:_BEGIN]}...({len(word) - _BEGIN - _END} characters)...{word[-_END:]}"


def columns(text: str) -> int:
    """Columns of a terminal that a shown text takes."""
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def excerpt(labels: Sequence[Label], main: Label | None, gutter: int, paint: Paint) -> list[str]:
    """Numbered lines of one source with a row of marks for each label.

    Args:
        labels: places in one source, in any order.
        main: the label marked with `^`; the others have `-`.
        gutter: columns of the line numbers.
        paint: kind of text, text -> text, perhaps coloured.
    """
    source = labels[0].span.source
    marks: dict[int, list[Mark]] = {}
    for label in labels:
        marks.setdefault(label.span.line, []).append(_mark(label, label is main))
    bar = paint("gutter", " " * gutter + " |")
    rows, before = [bar], None
    for number in sorted(marks):
        if before is not None and number - before == 2:
            rows.append(_numbered(number - 1, source.line(number - 1), (), gutter, paint)[0])
        elif before is not None and number - before > 2:
            rows.append(paint("gutter", _ELLIPSIS))
        rows += _numbered(number, source.line(number), _sorted(marks[number]), gutter, paint)
        before = number
    return [*rows, bar]


def _sorted(marks: Iterable[Mark]) -> list[Mark]:
    return sorted(marks, key=lambda mark: (mark.start, not mark.main))


def _mark(label: Label, main: bool) -> Mark:
    """The part of a label on its first line, at least one column."""
    span = label.span
    line, length = span.line, len(span.source.line(span.line))
    stop = span.stop
    start = min(span.column - 1, length)
    end = stop[1] - 1 if stop[0] == line else length
    return Mark(start=start, end=max(min(end, length), start + 1), text=brief(label.text), main=main)


def _numbered(number: int, line: str, marks: Sequence[Mark], gutter: int, paint: Paint) -> list[str]:
    """A source line, and a row of marks for each of its places."""
    first, last = _window(line, marks)
    glyphs = [glyph(char) for char in line[first:last]]
    lead = _ELLIPSIS if first else ""
    shown = lead + "".join(glyphs) + (_ELLIPSIS if last < len(line) else "")
    rows = [(paint("gutter", f"{number:>{gutter}} |") + f" {shown}").rstrip()]
    for mark in marks:
        start = min(max(mark.start - first, 0), len(glyphs))
        end = min(max(mark.end - first, start), len(glyphs))
        before = columns(lead + "".join(glyphs[:start]))
        under = max(columns("".join(glyphs[start:end])), 1)
        kind = "main" if mark.main else "other"
        text = ("^" if mark.main else "-") * under + (f" {mark.text}" if mark.text else "")
        rows.append(paint("gutter", " " * gutter + " |") + " " * (before + 1) + paint(kind, text))
    return rows


def _window(line: str, marks: Sequence[Mark]) -> tuple[int, int]:
    """The characters of a line that are shown: all, or `COLUMNS` columns around the first mark."""
    if len(line) <= COLUMNS and sum(columns(glyph(char)) for char in line) <= COLUMNS:
        return 0, len(line)
    anchor = next((mark.start for mark in marks if mark.main), marks[0].start if marks else 0)
    first, room = anchor, COLUMNS // 3
    while first > 0 and (room := room - columns(glyph(line[first - 1]))) >= 0:
        first -= 1
    last, room = first, COLUMNS
    while last < len(line) and (room := room - columns(glyph(line[last]))) >= 0:
        last += 1
    return first, last
