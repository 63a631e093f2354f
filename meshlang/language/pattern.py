"""Globs over dotted names of modules and tensors.

`*` stands for characters of one path part, `**` for any number of whole parts, `{a,b}` for
either of two patterns, `[0-3,7]` for one of these numbers. There is nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

#: A pattern that stands for more of these than said is refused, so that matching stays fast.
MOST_ALTERNATIVES = 1000
MOST_NUMBERS = 4096
MOST_STARS = 8
MOST_BRACES = 16
MOST_LETTERS = 200_000


class PatternError(Exception):
    """A text that is no pattern; `start` and `end` are offsets in it."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.end = end


@dataclass(frozen=True)
class Pattern:
    """A glob. Equal text is an equal pattern."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """The pattern that a text spells.

        Raises:
            PatternError: the text is no pattern; says where.
        """
        _compiled(text)
        return cls(text)

    def matches(self, fqn: str) -> bool:
        """True for a name that the pattern spells part by part."""
        return _compiled(self.text).exact.fullmatch(fqn) is not None

    def covers(self, fqn: str) -> bool:
        """True for a name that the pattern matches, and for everything below such a name."""
        return _compiled(self.text).below.fullmatch(fqn) is not None

    @property
    def depth(self) -> int:
        """Path parts of the shortest name that the pattern matches."""
        return _compiled(self.text).depth

    def alternatives(self) -> Iterator[Pattern]:
        """One pattern for each word of its braces, and one for each number of its lists.

        Together they match what the pattern matches; each of them is meant to name something.
        """
        for flat in _Reader(self.text).read():
            lists = [index for index, token in enumerate(flat) if token.kind == "numbers"]
            if not lists:
                yield Pattern(_spelled(flat))
            for index in lists:
                before, after = _spelled(flat[:index]), _spelled(flat[index + 1 :])
                yield from (Pattern(f"{before}{number}{after}") for number in flat[index].text.split("|"))

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True)
class _Compiled:
    exact: re.Pattern[str]
    below: re.Pattern[str]
    depth: int


@dataclass(frozen=True, kw_only=True)
class _Token:
    """One piece of a pattern without alternatives; `kind` is text, dot, star, stars or numbers."""

    kind: str
    text: str
    start: int
    end: int


_Flat = tuple[_Token, ...]


def _spelled(flat: _Flat) -> str:
    """The text of a pattern without braces."""
    return "".join(f"[{t.text.replace('|', ',')}]" if t.kind == "numbers" else t.text for t in flat)


@lru_cache(maxsize=4096)
def _compiled(text: str) -> _Compiled:
    """The expressions behind a text, made once."""
    flats = _Reader(text).read()
    parts = [_parts(flat, text) for flat in flats]
    exact = "|".join(_expression(each) for each in parts)
    if len(exact) > MOST_LETTERS:
        raise PatternError("a pattern of too many alternatives and numbers", 0, len(text))
    return _Compiled(
        exact=re.compile(f"(?:{exact})"),
        below=re.compile(rf"(?:{exact})(?:\..*)?", re.DOTALL),
        depth=min(sum(1 for part in each if part[0].kind != "stars") for each in parts),
    )


class _Reader:
    """Reads a text from left to right; answers with every star pattern that it stands for."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.open = 0

    def read(self) -> list[_Flat]:
        """All alternatives of the whole text, spelled out."""
        if not self.text:
            raise PatternError("a pattern is empty", 0, 0)
        found = self.sequence(inside=False)
        assert self.at == len(self.text)
        return found

    def sequence(self, *, inside: bool) -> list[_Flat]:
        """Alternatives of the pieces up to the end, or up to `,` or `}` inside braces."""
        start, pieces = self.at, []
        while self.at < len(self.text) and not (inside and self.text[self.at] in ",}"):
            pieces.append(self.piece())
        if inside and not pieces:
            raise PatternError("an alternative is empty", start, min(start + 1, len(self.text)))
        count = 1
        for piece in pieces:
            count *= len(piece)
        if count > MOST_ALTERNATIVES:
            message = f"a pattern stands for at most {MOST_ALTERNATIVES} alternatives, and this for {count}"
            raise PatternError(message, start, self.at)
        return [tuple(token for flat in choice for token in flat) for choice in product(*pieces)]

    def piece(self) -> list[_Flat]:
        """Alternatives of the next piece."""
        char, start = self.text[self.at], self.at
        if char == "{":
            return self.braces()
        if char == "[":
            return [(self.numbers(),)]
        if char == "*":
            return [(self.stars(),)]
        if char == ".":
            self.at += 1
            return [(_Token(kind="dot", text=".", start=start, end=self.at),)]
        return [(self.word(),)]

    def braces(self) -> list[_Flat]:
        """Alternatives between `{` and `}`."""
        start, found = self.at, []
        self.open += 1
        if self.open > MOST_BRACES:
            raise PatternError(f"more than {MOST_BRACES} braces inside each other", start, start + 1)
        while self.at == start or self.text[self.at] == ",":
            self.at += 1
            found += self.sequence(inside=True)
            if self.at == len(self.text):
                raise PatternError("`{` is not closed by `}`", start, start + 1)
        self.at += 1
        self.open -= 1
        return found

    def numbers(self) -> _Token:
        """One of the numbers between `[` and `]`."""
        start = self.at
        stop = self.text.find("]", start)
        if stop < 0:
            raise PatternError("`[` is not closed by `]`", start, start + 1)
        self.at = stop + 1
        values = sorted(set(_numbers(self.text[start + 1 : stop], start + 1)))
        return _Token(kind="numbers", text="|".join(map(str, values)), start=start, end=self.at)

    def stars(self) -> _Token:
        """`*` or `**`."""
        start = self.at
        while self.at < len(self.text) and self.text[self.at] == "*":
            self.at += 1
        if self.at - start > 2:
            raise PatternError(f"{self.at - start} stars in a row; `*` and `**` are known", start, self.at)
        kind = "star" if self.at - start == 1 else "stars"
        return _Token(kind=kind, text=self.text[start : self.at], start=start, end=self.at)

    def word(self) -> _Token:
        """Letters, digits, `_` and `-` of a name."""
        start = self.at
        while self.at < len(self.text) and (self.text[self.at].isalnum() or self.text[self.at] in "_-"):
            self.at += 1
        if self.at == start:
            raise PatternError(_stray(self.text[start]), start, start + 1)
        return _Token(kind="text", text=self.text[start : self.at], start=start, end=self.at)


def _stray(char: str) -> str:
    if char in "}]":
        return f"`{char}` closes nothing"
    if char == ",":
        return "`,` separates alternatives inside `{...}` only"
    return f"{char!r} is no character of a name, and patterns are globs: `*`, `**`, `{{a,b}}`, `[0-3]`"


def _numbers(text: str, start: int) -> Iterator[int]:
    """The numbers of `0,2,4-6`; `start` is where the text begins in its pattern."""
    for item in text.split(","):
        found = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", item)
        if found is None:
            message = f"`[{text}]` is no list of numbers; `[0-3]` and `[0,2,4-6]` are"
            raise PatternError(message, start, start + max(len(item), 1))
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise PatternError(f"the range {item} runs backwards; {last}-{first} is meant?", start, start + len(item))
        if last - first >= MOST_NUMBERS:
            message = f"the range {item} has {last - first + 1} numbers, and at most {MOST_NUMBERS} are read"
            raise PatternError(message, start, start + len(item))
        yield from range(first, last + 1)
        start += len(item) + 1


def _parts(flat: _Flat, text: str) -> list[_Flat]:
    """The path parts of a star pattern; neighbouring `**` are one."""
    if sum(token.kind in ("star", "stars") for token in flat) > MOST_STARS:
        raise PatternError(f"more than {MOST_STARS} stars in one pattern", 0, len(text))
    parts: list[list[_Token]] = [[]]
    for token in flat:
        if token.kind == "dot" and not parts[-1]:
            raise PatternError("nothing stands before this dot", token.start, token.end)
        if token.kind == "dot":
            parts.append([])
        else:
            parts[-1].append(token)
    if not parts[-1]:
        raise PatternError("nothing stands after the last dot", flat[-1].start, flat[-1].end)
    for part in parts:
        _whole(part)
    stars = [part[0].kind == "stars" for part in parts]
    return [tuple(part) for i, part in enumerate(parts) if not (i and stars[i] and stars[i - 1])]


def _whole(part: list[_Token]) -> None:
    """`**` is a part by itself."""
    for token in part:
        if token.kind == "stars" and len(part) > 1:
            raise PatternError("`**` stands for whole parts; inside a part it is `*`", token.start, token.end)


def _expression(parts: list[_Flat]) -> str:
    """The regular expression of a star pattern."""
    if len(parts) == 1 and parts[0][0].kind == "stars":
        return r"(?:[^.]+(?:\.[^.]+)*)?"
    found, last = "", len(parts) - 1
    for i, part in enumerate(parts):
        if part[0].kind == "stars":
            found += r"(?:\.[^.]+)*" if i == last else r"(?:[^.]+\.)*"
            continue
        ends = i == last or (i + 1 == last and parts[last][0].kind == "stars")
        found += _part(part) + ("" if ends else r"\.")
    return found


def _part(part: _Flat) -> str:
    """The regular expression of one path part; a number never begins or ends inside a longer one."""
    if len(part) == 1 and part[0].kind == "star":
        return "[^.]+"
    kinds = ["", *(token.kind for token in part), ""]
    found = ""
    for before, token, after in zip(kinds, part, kinds[2:], strict=False):
        if token.kind == "text":
            found += re.escape(token.text)
        elif token.kind == "star":
            found += "[^.]*"
        else:
            left = r"(?<![0-9])" if before == "star" else ""
            right = r"(?![0-9])" if after == "star" else ""
            found += f"{left}(?:{token.text}){right}"
    return found
