"""Equal things of many layers told as one: `layers.0.wo ... layers.5.wo` is `layers.*.wo`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

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
        return tuple(_one(text, members, self._counts[text]) for text, members in groups.items())


def _one(text: str, members: Sequence[str], total: int) -> str:
    if len(members) == 1:
        return members[0]
    if len(members) == total or text.count("*") > 1:
        return text
    return text.replace("*", f"[{ranges(int(_NUMBER.findall(fqn)[0]) for fqn in members)}]", 1)


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
