"""Names of a real model folded the way a card writes them: `layers.*`, or `net.{0,2}` where not all are meant."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise

from .facts import Facts
from .model import RUN_SIZES, parent

_INDEX = re.compile(r"0|[1-9][0-9]*")
_LISTS = ("ModuleList", "ModuleDict")

Parts = tuple[str, ...]


def is_index(part: str) -> bool:
    """True for a part of a name that counts layers."""
    return _INDEX.fullmatch(part) is not None


def list_sizes(facts: Facts) -> dict[str, int]:
    """Name -> how many, of each list of equal modules that a `*` may stand for.

    Lists of one name and different lengths share the length that most of them have.
    """
    found: dict[str, Counter[int]] = {}
    for base, children in _lists(facts).items():
        name = base.rpartition(".")[2]
        kinds = {facts.modules[f"{base}.{child}"].kind for child in children}
        alike = len(kinds) == 1 and (len(children) > 1 or facts.modules[base].kind in _LISTS)
        full = {int(child) for child in children} == set(range(len(children)))
        if alike and full and name.isidentifier() and name not in (*RUN_SIZES, "tied"):
            found.setdefault(name, Counter())[len(children)] += 1
    return {name: max(counts, key=lambda n: (counts[n], n)) for name, counts in found.items()}


def _lists(facts: Facts) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for fqn in facts.modules:
        base, _, last = fqn.rpartition(".")
        if base and is_index(last):
            found.setdefault(base, []).append(last)
    return found


def element(fqn: str, sizes: Mapping[str, int]) -> str | None:
    """The outermost element of a list that a module is or lies in: `layers.3` of `layers.3.mlp`."""
    parts = fqn.split(".")
    for i in range(1, len(parts)):
        if is_index(parts[i]) and parts[i - 1] in sizes:
            return ".".join(parts[: i + 1])
    return None


def fold_names(fqns: Iterable[str], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """The patterns of a card that stand for exactly these names."""
    groups: dict[Parts, list[Parts]] = {}
    for fqn in fqns:
        parts = tuple(fqn.split("."))
        groups.setdefault(tuple("*" if is_index(part) else part for part in parts), []).append(parts)
    return tuple(pattern for rows in groups.values() for pattern in _fold(rows, sizes, ""))


def _fold(rows: list[Parts], sizes: Mapping[str, int], before: str) -> tuple[str, ...]:
    """Rows differ in nothing but numbers; the first number's choices are folded, then those behind it."""
    first = rows[0]
    place = next((i for i, part in enumerate(first) if is_index(part)), None)
    if place is None:
        return (".".join(first),)
    head = first[:place]
    name = head[-1] if head else before
    behind: dict[str, list[Parts]] = {}
    for row in rows:
        behind.setdefault(row[place], []).append(row[place + 1 :])
    alike: dict[tuple[str, ...], list[str]] = {}
    for index, rest in behind.items():
        tails = _fold(rest, sizes, "") if rest[0] else ("",)
        alike.setdefault(tails, []).append(index)
    return tuple(
        ".".join(part for part in (*head, _choice(indexes, sizes.get(name)), tail) if part)
        for tails, indexes in alike.items()
        for tail in tails
    )


def _choice(indexes: list[str], size: int | None) -> str:
    if size is not None and {int(index) for index in indexes} == set(range(size)):
        return "*"
    return indexes[0] if len(indexes) == 1 else "{" + ",".join(indexes) + "}"


def like(module: str, pattern: str) -> bool:
    """True when the two differ in nothing but what stands for a layer."""
    parts, others = module.split("."), re.sub(r"\{[^}]*\}", "*", pattern).split(".")
    return len(parts) == len(others) and all(a == b or b == "*" for a, b in zip(parts, others, strict=True))


def stars(pattern: str) -> tuple[str, ...]:
    """The sizes that the stars of a pattern count to."""
    parts = pattern.split(".")
    return tuple(before for before, part in pairwise(parts) if part == "*")


def outermost(fqns: Iterable[str]) -> tuple[str, ...]:
    """Those of the names that lie in no other."""
    found = set(fqns)
    return tuple(fqn for fqn in dict.fromkeys(fqns) if not inside(fqn, found - {fqn}))


def inside(fqn: str, known: Iterable[str]) -> bool:
    """True when a name is one of the known, or lies in one."""
    known = frozenset(known)
    while fqn not in known:
        if not fqn:
            return False
        fqn = parent(fqn)
    return True
