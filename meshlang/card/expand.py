"""Names in a card stand for many: `{a,b}` for each word, `layers.*` for each of the flavor's layers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod

#: One name of a card may stand for so many fqns; more is a slip in a size.
MOST_NAMES = 20_000

_CHOICE = re.compile(r"\{([^{}]*)\}")
_PART = re.compile(r"[^\s.{}*]+|\*")


class ExpandError(Exception):
    """A name that cannot be written out, with the reason."""


@dataclass(frozen=True)
class Expansion:
    """One fqn and the numbers that its stars stand for, so that two names can be walked together."""

    fqn: str
    stars: tuple[int, ...]


def expand(text: str, sizes: Mapping[str, int], most: int = MOST_NAMES) -> tuple[Expansion, ...]:
    """Every fqn that `text` stands for, in order; "" stands for the root alone.

    A `*` counts from 0 up to the size that is named like the part before it.

    Raises:
        ExpandError: no such size, a part is no name, braces do not pair, or too many names.
    """
    found: list[Expansion] = []
    for choice in choices(text):
        counts = _counts(choice, sizes)
        if len(found) + prod(counts) > most:
            raise (
                _too_many(text)
                if most == MOST_NAMES
                else ExpandError(f"`{text}`: a card does not have so many names in all")
            )
        found += (Expansion(at(choice, stars), stars) for stars in product(*map(range, counts)))
    return tuple(found)


def choices(text: str) -> Iterator[str]:
    """`text` once for each combination of the words in its braces."""
    pieces = _CHOICE.split(text)
    if any(char in piece for piece in pieces[::2] for char in "{}"):
        raise ExpandError(f"`{text}` has a brace without its other one, or braces inside braces")
    words = [[word.strip() for word in piece.split(",")] for piece in pieces[1::2]]
    if prod(len(each) for each in words) > MOST_NAMES:
        raise _too_many(text)
    for chosen in product(*words):
        yield "".join(a + b for a, b in zip(pieces[::2], (*chosen, ""), strict=True))


def at(text: str, stars: tuple[int, ...]) -> str:
    """`text` with its stars replaced, first by first."""
    for star in stars:
        text = text.replace("*", str(star), 1)
    return text


def _counts(text: str, sizes: Mapping[str, int]) -> list[int]:
    """How many each star of a name stands for."""
    if not text:
        return []
    parts = text.split(".")
    for part in parts:
        if _PART.fullmatch(part) is None:
            raise ExpandError(f"`{text}`: `{part}` is no part of a name")
    return [_count(text, before, sizes) for before, part in pairwise(("", *parts)) if part == "*"]


def _count(text: str, name: str, sizes: Mapping[str, int]) -> int:
    if name not in sizes:
        raise ExpandError(f"`{text}`: the flavor has no size `{name}` that says how many `*` stands for")
    return sizes[name]


def _too_many(text: str) -> ExpandError:
    return ExpandError(f"`{text}` stands for more than {MOST_NAMES} names")
