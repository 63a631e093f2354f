"""Equal things of many layers told as one: `layers.0.wo ... layers.5.wo` is `layers.*.wo`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from typing import TypeAlias

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


def template(fqn: str) -> str:
    """The fqn with each number replaced by `*`."""
    return _NUMBER.sub("*", fqn)


def fold(fqns: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """The fewest patterns that name `fqns` and nothing else of `known`.

    Numbers become `*` where all of the known ones are meant, `[0-3,7]` where some are.
    """
    return Known(known).fold(fqns)


class Known:
    """Names that there are, to fold some of them; made once for many foldings."""

    def __init__(self, names: Iterable[str]) -> None:
        self._templates = {name: template(name) for name in names}
        self._counts = Counter(self._templates.values())

    def template(self, fqn: str) -> str:
        """`template(fqn)`, remembered."""
        return self._templates.get(fqn) or template(fqn)

    def fold(self, fqns: Iterable[str]) -> tuple[str, ...]:
        """The fewest patterns that name `fqns` and nothing else that there is."""
        groups: dict[str, list[str]] = {}
        for fqn in dict.fromkeys(fqns):
            groups.setdefault(self.template(fqn), []).append(fqn)
        return tuple(pattern for text, members in groups.items() for pattern in self._patterns(text, members))

    def _patterns(self, text: str, members: Sequence[str]) -> Iterable[str]:
        """The patterns of names that differ in numbers only; `text` is their template."""
        if len(members) == 1:
            return members
        if len(members) == self._counts[text]:
            return (text,)
        known = {_numbers(name) for name, each in self._templates.items() if each == text}
        return (_filled(text, spelled) for spelled in _spelled({_numbers(fqn) for fqn in members}, known))


Numbers: TypeAlias = tuple[int, ...]


def _numbers(fqn: str) -> Numbers:
    return tuple(int(number) for number in _NUMBER.findall(fqn))


def _filled(text: str, spelled: Sequence[str]) -> str:
    """The template with something in place of each of its `*`."""
    pieces = text.split("*")
    return pieces[0] + "".join(f"{word}{piece}" for word, piece in zip(spelled, pieces[1:], strict=True))


def _spelled(members: Set[Numbers], known: Set[Numbers]) -> list[tuple[str, ...]]:
    """The fewest spellings that stand for `members` and for nothing else of `known`."""
    if not min(members, default=()):
        return [()]
    heads: dict[tuple[tuple[str, ...], ...], list[int]] = {}
    for head in sorted({numbers[0] for numbers in members}):
        tails = _spelled(_behind(head, members), _behind(head, known))
        heads.setdefault(tuple(tails), []).append(head)
    every = {numbers[0] for numbers in known}
    return [(_word(firsts, every), *tail) for tails, firsts in heads.items() for tail in tails]


def _behind(head: int, numbers: Set[Numbers]) -> set[Numbers]:
    return {each[1:] for each in numbers if each[0] == head}


def _word(numbers: Sequence[int], known: Set[int]) -> str:
    """`*` for all that there are, `3` for one, `[0-3,7]` for some."""
    if len(numbers) == 1:
        return str(numbers[0])
    return "*" if set(numbers) == known else f"[{ranges(numbers)}]"


def ranges(numbers: Iterable[int]) -> str:
    """`0-3,7` for 0, 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def told(fqns: Sequence[str], known: Iterable[str]) -> str:
    """Folded fqns with their count, as notes say them: `layers.*.attention.wk.weight (6 tensors)`."""
    patterns = fold(fqns, known)
    shown = ", ".join(patterns[:3]) + (", ..." if len(patterns) > 3 else "")
    return f"{shown} ({len(fqns)} in all)" if len(fqns) > 1 else shown
