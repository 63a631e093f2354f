"""Text with a name, and positions in it."""

from __future__ import annotations

import errno
import os
import stat
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

#: A larger file is not read. Specs and cards have some thousand bytes.
MOST_BYTES = 2**20
#: Of a file that is too large, what a finding shows.
_SHOWN = 64


def head(path: str | Path, most: int) -> bytes:
    """The first bytes of a file; of a pipe, what is written into it.

    Raises:
        OSError: the file cannot be read, or is a pipe that nobody has open to write: that would be waited for forever.
    """
    with open(path, "rb", opener=_at_once) as file:
        if not stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            return file.read(most)
        try:
            first = os.read(file.fileno(), 1)
        except BlockingIOError:
            first = b""
        else:
            if not first:
                raise OSError(errno.EPIPE, "a pipe that nobody writes to", str(path))
        os.set_blocking(file.fileno(), True)
        return first + file.read(most - len(first))


def _at_once(path: str, flags: int) -> int:
    """Opens without waiting for another process."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


@dataclass(frozen=True)
class Source:
    """A text and the name a reader knows it by: a file's path, or a flag of the command line."""

    name: str
    text: str = field(repr=False)
    #: Offset of the first U+FFFD that stands for bytes which are no UTF-8; None when all were.
    undecoded: int | None = None
    #: The file has more bytes than are read; the text is its beginning.
    too_large: bool = False

    @classmethod
    def read(cls, path: str | Path) -> Source:
        """The file at `path`, decoded as UTF-8; bytes that are not become U+FFFD and a finding of the scanner.

        Of a file with more than `MOST_BYTES`, the beginning and a finding of the scanner.

        Raises:
            OSError: the file cannot be read.
        """
        return cls.decode(str(path), head(path, MOST_BYTES + 1))

    @classmethod
    def decode(cls, name: str, data: bytes) -> Source:
        """Bytes as text, and where they stop being UTF-8; of too many the beginning."""
        if len(data) > MOST_BYTES:
            return cls(name=name, text=data[:_SHOWN].decode("utf-8", errors="replace"), too_large=True)
        try:
            return cls(name=name, text=data.decode("utf-8"))
        except UnicodeDecodeError as error:
            good = len(data[: error.start].decode("utf-8"))
            return cls(name=name, text=data.decode("utf-8", errors="replace"), undecoded=good)

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """Offset of the first character of each line; only a line feed ends a line, as in TOML."""
        return (0, *(i + 1 for i, char in enumerate(self.text) if char == "\n"))

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of a character, both counted from 1."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def offset(self, line: int, column: int) -> int:
        """Offset of a line and column, both counted from 1; offset(*position(i)) == i."""
        return min(self._starts[line - 1] + column - 1, len(self.text))

    def line(self, number: int) -> str:
        """The text of line `number`, from 1, without its line end."""
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r")

    def span(self, start: int, end: int) -> Span:
        """The characters from `start` up to, not including, `end`."""
        return Span(source=self, start=start, end=end)


@dataclass(frozen=True, kw_only=True)
class Span:
    """A stretch of a source: characters `start` up to, not including, `end`."""

    source: Source
    start: int
    end: int

    @property
    def line(self) -> int:
        """Line of the first character, from 1."""
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        """Column of the first character, from 1."""
        return self.source.position(self.start)[1]

    @property
    def stop(self) -> tuple[int, int]:
        """Line and column just past the last character."""
        return self.source.position(self.end)

    @property
    def text(self) -> str:
        """The characters themselves."""
        return self.source.text[self.start : self.end]

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"
