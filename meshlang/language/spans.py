"""Where each key and value of a TOML text stands.

tomli decides what a text means and whether it is TOML at all; this scanner only finds places, in
a text that tomli has accepted. On any other text it ends with a `ScanError`, or early, never in a loop.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import tomli

from ..source import Source, Span

#: Levels of tables and arrays inside each other.
MOST_NESTING = 100
#: Keys, headers and elements of one text.
MOST_VALUES = 4000

_BLANK = re.compile(r"[ \t]*")
_LINES = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]*")
_STRING = re.compile(
    r'''"""(?:\\.|[^\\])*?""""{0,2}|\'\'\'.*?\'\'\'\'{0,2}|"(?:\\.|[^"\\\n])*"|'[^'\n]*\'''',
    re.DOTALL,
)


class ScanError(Exception):
    """The scanner cannot go on at an offset."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"at {offset}")
        self.offset = offset


class DeepError(ScanError):
    """More than `MOST_NESTING` levels."""


class ManyError(ScanError):
    """More than `MOST_VALUES` values."""


class TwiceError(ScanError):
    """A key that stands in two places."""

    def __init__(self, key: Span, first: Span) -> None:
        super().__init__(key.start)
        self.key = key
        self.first = first


@dataclass(kw_only=True)
class Mark:
    """Places of one value while the text is read; `inner` holds those of a table or an array.

    `explicit` is false for a table that only headers of its inner tables have made so far.
    """

    key: Span | None
    span: Span
    inner: dict[str, Mark] | list[Mark] | None = None
    explicit: bool = True


@dataclass(frozen=True, kw_only=True)
class _Word:
    """One part of a key."""

    name: str
    span: Span


@dataclass
class Scanner:
    """Reads one text from top to bottom."""

    source: Source
    at: int = 0
    count: int = 0
    text: str = field(init=False)
    root: Mark = field(init=False)

    def __post_init__(self) -> None:
        self.text = self.source.text
        self.root = Mark(key=None, span=self.source.span(0, len(self.text)), inner={})

    def read(self, end: int | None = None) -> Mark:
        """Places of the whole text, or of its statements before `end`.

        Raises:
            ScanError: the text is not TOML, nests too deep, or names a key twice.
        """
        stop = len(self.text) if end is None else end
        here, depth = self.root, 0
        self.skip(_LINES)
        while self.at < stop:
            if self.text[self.at] == "[":
                here, depth = self.header()
            else:
                self.pair(here, depth)
            self.skip(_LINES)
        return self.root

    def skip(self, what: re.Pattern[str]) -> None:
        """Move past what matches here."""
        found = what.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def expect(self, mark: str) -> None:
        """Move past `mark`, which stands here."""
        if not self.text.startswith(mark, self.at):
            raise ScanError(self.at)
        self.at += len(mark)

    def header(self) -> tuple[Mark, int]:
        """The table that `[a.b]` or `[[a.b]]` opens, and its level."""
        self.counted()
        start = self.at
        many = self.text.startswith("[[", start)
        self.at += 2 if many else 1
        self.skip(_BLANK)
        words = self.key()
        self.expect("]]" if many else "]")
        span = self.source.span(start, self.at)
        here = self.root
        for word in words[:-1]:
            here = _open(here, word, span, explicit=False)
        return (_append if many else _declare)(here, words[-1], span), len(words)

    def counted(self) -> None:
        """One value more."""
        self.count += 1
        if self.count > MOST_VALUES:
            raise ManyError(self.at)

    def key(self) -> list[_Word]:
        """The parts of a dotted key, and the blanks behind it."""
        words = [self.word()]
        self.skip(_BLANK)
        while self.text.startswith(".", self.at):
            self.at += 1
            self.skip(_BLANK)
            words.append(self.word())
            self.skip(_BLANK)
            if len(words) > MOST_NESTING:
                raise DeepError(words[0].span.start)
        return words

    def word(self) -> _Word:
        """One part of a key, bare or quoted."""
        start = self.at
        quoted = self.text[start : start + 1] in ('"', "'")
        self.skip(_STRING if quoted else _BARE)
        if self.at == start:
            raise ScanError(start)
        text = self.text[start : self.at]
        return _Word(name=_unquoted(text) if quoted else text, span=self.source.span(start, self.at))

    def pair(self, table: Mark, depth: int) -> None:
        """Put `key = value` into a table."""
        words = self.key()
        if depth + len(words) > MOST_NESTING:
            raise DeepError(words[0].span.start)
        self.expect("=")
        self.skip(_BLANK)
        mark = self.value(words[-1].span, depth + len(words))
        for word in words[:-1]:
            table = _open(table, word, word.span, explicit=True)
        if not isinstance(table.inner, dict):
            raise TwiceError(words[-1].span, table.key or table.span)
        first = table.inner.setdefault(words[-1].name, mark)
        if first is not mark:
            raise TwiceError(words[-1].span, first.key or first.span)

    def value(self, key: Span | None, depth: int) -> Mark:
        """The value that begins here."""
        self.counted()
        if depth > MOST_NESTING:
            raise DeepError(self.at)
        start, char = self.at, self.text[self.at : self.at + 1]
        if char == "[":
            return self.array(key, depth)
        if char == "{":
            return self.inline(key, depth)
        if char in ('"', "'"):
            self.skip(_STRING)
        else:
            self.skip(_SCALAR)
            self.at = start + len(self.text[start : self.at].rstrip(" \t\r"))
        if self.at == start:
            raise ScanError(start)
        return Mark(key=key, span=self.source.span(start, self.at))

    def array(self, key: Span | None, depth: int) -> Mark:
        """`[value, ...]`."""
        start, inner = self.at, []
        self.at += 1
        self.skip(_LINES)
        while not self.text.startswith("]", self.at):
            inner.append(self.value(None, depth + 1))
            self.comma("]")
        self.at += 1
        return Mark(key=key, span=self.source.span(start, self.at), inner=inner)

    def inline(self, key: Span | None, depth: int) -> Mark:
        """`{key = value, ...}`."""
        start = self.at
        table = Mark(key=key, span=self.source.span(start, start + 1), inner={})
        self.at += 1
        self.skip(_LINES)
        while not self.text.startswith("}", self.at):
            self.pair(table, depth)
            self.comma("}")
        self.at += 1
        table.span = self.source.span(start, self.at)
        return table

    def comma(self, close: str) -> None:
        """Move to the next element, or to the closing mark."""
        self.skip(_LINES)
        if not self.text.startswith(close, self.at):
            self.expect(",")
            self.skip(_LINES)


def _unquoted(text: str) -> str:
    if text[0] == "'" or "\\" not in text:
        return text[1:-1]
    try:
        return tomli.loads(f"key = {text}")["key"]
    except ValueError:
        return text


def _open(table: Mark, word: _Word, span: Span, *, explicit: bool) -> Mark:
    """The table behind one part of a dotted key; the last one of an array of tables."""
    if not isinstance(table.inner, dict):
        raise TwiceError(word.span, table.key or table.span)
    made = Mark(key=word.span, span=span, inner={}, explicit=explicit)
    found = table.inner.setdefault(word.name, made)
    if isinstance(found.inner, list) and found.inner:
        found = found.inner[-1]
    if not isinstance(found.inner, dict):
        raise TwiceError(word.span, found.key or found.span)
    return found


def _declare(table: Mark, word: _Word, span: Span) -> Mark:
    """The table of `[a.b]`; one that only headers of inner tables have made so far takes this place."""
    found = _open(table, word, span, explicit=False)
    if found.explicit:
        raise TwiceError(word.span, found.key or found.span)
    found.key, found.span, found.explicit = word.span, span, True
    return found


def _append(table: Mark, word: _Word, span: Span) -> Mark:
    """A new table at the end of the array of `[[a.b]]`."""
    assert isinstance(table.inner, dict)
    found = table.inner.setdefault(word.name, Mark(key=word.span, span=span, inner=[]))
    if not isinstance(found.inner, list):
        raise TwiceError(word.span, found.key or found.span)
    element = Mark(key=word.span, span=span, inner={})
    found.inner.append(element)
    return element
