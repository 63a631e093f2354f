"""Names in a card stand for many: `{a,b}` for each word, `layers.*` for each of the flavor's layers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_CHOICE = re.compile(r"\{([^{}]*)\}")


class ExpandError(Exception):
    """A name that cannot be written out, with the reason."""


@dataclass(frozen=True)
class Expansion:
    """One fqn and the numbers that its stars stand for, so that two names can be walked together."""

    fqn: str
    stars: tuple[int, ...]


def expand(text: str, sizes: Mapping[str, int]) -> Iterator[Expansion]:
    """Every fqn that `text` stands for, in order.

    A `*` counts from 0 up to the size that is named like the part before it.

    Raises:
        ExpandError: no such size, or a pair of braces is open.
    """
    for choice in choices(text):
        yield from _stars(choice.split("."), sizes, (), ())


def choices(text: str) -> Iterator[str]:
    """`text` once for each combination of the words in its braces."""
    match = _CHOICE.search(text)
    if match is None:
        if "{" in text or "}" in text:
            raise ExpandError(f"`{text}` has an open brace")
        yield text
        return
    for word in match.group(1).split(","):
        yield from choices(text[: match.start()] + word.strip() + text[match.end() :])


def at(text: str, stars: tuple[int, ...]) -> str:
    """`text` with its stars replaced, first by first."""
    for star in stars:
        text = text.replace("*", str(star), 1)
    return text


def _stars(
    parts: list[str], sizes: Mapping[str, int], done: tuple[str, ...], stars: tuple[int, ...]
) -> Iterator[Expansion]:
    for position, part in enumerate(parts):
        if part != "*":
            continue
        name = parts[position - 1] if position else ""
        if name not in sizes:
            raise ExpandError(f"`{'.'.join(parts)}`: the flavor has no size `{name}` that says how many `*` stands for")
        head, tail = (*done, *parts[:position]), parts[position + 1 :]
        for index in range(sizes[name]):
            yield from _stars(tail, sizes, (*head, str(index)), (*stars, index))
        return
    yield Expansion(".".join((*done, *parts)), stars)
