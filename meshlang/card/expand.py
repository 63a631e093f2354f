"""Names in a card stand for many: `{a,b}` for each word, `layers.*` for each of the flavor's layers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product

#: One name of a card may stand for so many fqns; more is a slip in a size.
MOST_NAMES = 100_000

_CHOICE = re.compile(r"\{([^{}]*)\}")
_PART = re.compile(r"[^\s.{}*]+|\*")


class ExpandError(Exception):
    """A name that cannot be written out, with the reason."""


@dataclass(frozen=True)
class Expansion:
    """One fqn and the numbers that its stars stand for, so that two names can be walked together."""

    fqn: str
    stars: tuple[int, ...]


def expand(text: str, sizes: Mapping[str, int]) -> tuple[Expansion, ...]:
    """Every fqn that `text` stands for, in order; "" stands for the root alone.

    A `*` counts from 0 up to the size that is named like the part before it.

    Raises:
        ExpandError: no such size, a part is no name, braces do not pair, or too many names.
    """
    found: list[Expansion] = []
    for choice in choices(text):
        found += islice(_stars(choice, sizes), MOST_NAMES - len(found) + 1)
        if len(found) > MOST_NAMES:
            raise ExpandError(f"`{text}` stands for more than {MOST_NAMES} names")
    return tuple(found)


def choices(text: str) -> Iterator[str]:
    """`text` once for each combination of the words in its braces."""
    pieces = _CHOICE.split(text)
    if any(char in piece for piece in pieces[::2] for char in "{}"):
        raise ExpandError(f"`{text}` has a brace without its other one, or braces inside braces")
    words = [[word.strip() for word in piece.split(",")] for piece in pieces[1::2]]
    for chosen in product(*words):
        yield "".join(a + b for a, b in zip(pieces[::2], (*chosen, ""), strict=True))


def at(text: str, stars: tuple[int, ...]) -> str:
    """`text` with its stars replaced, first by first."""
    for star in stars:
        text = text.replace("*", str(star), 1)
    return text


def _stars(text: str, sizes: Mapping[str, int]) -> Iterator[Expansion]:
    if not text:
        yield Expansion("", ())
        return
    parts = text.split(".")
    counts = []
    for before, part in zip(("", *parts), parts, strict=False):
        if _PART.fullmatch(part) is None:
            raise ExpandError(f"`{text}`: `{part}` is no part of a name")
        if part == "*":
            counts.append(_count(text, before, sizes))
    for stars in _counted(counts):
        yield Expansion(at(text, stars), stars)


def _counted(counts: list[int]) -> Iterator[tuple[int, ...]]:
    """Every tuple of numbers below `counts`, without holding one range in memory."""
    total = 1
    for count in counts:
        total *= count
    for number in range(min(total, MOST_NAMES + 1)):
        stars = []
        for count in reversed(counts):
            number, star = divmod(number, count)
            stars.append(star)
        yield tuple(reversed(stars))


def _count(text: str, name: str, sizes: Mapping[str, int]) -> int:
    if name not in sizes:
        raise ExpandError(f"`{text}`: the flavor has no size `{name}` that says how many `*` stands for")
    return sizes[name]
