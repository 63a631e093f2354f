"""Fixes are tried before they are offered: with one its finding is gone, and no other has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from .diagnostics import Diagnostic, Edit, Help

#: Fixes that are tried for one text; findings beyond them offer none.
MOST_TRIED = 64


@dataclass(frozen=True, kw_only=True)
class Found:
    """All findings of the first step that has any, and the number of that step: a later one has a higher."""

    findings: tuple[Diagnostic, ...] = ()
    step: int = 0


#: What is found once an edit is made.
Again: TypeAlias = Callable[[Edit], Found]


def tried(found: Found, again: Again) -> tuple[Diagnostic, ...]:
    """The findings, each with those of its fixes that mend it."""
    told, left = [], MOST_TRIED if len(found.findings) <= MOST_TRIED else 0
    for each in found.findings:
        fixes = each.help if sum(len(help_.edits) for help_ in each.help) <= left else ()
        left -= sum(len(help_.edits) for help_ in fixes)
        told.append(replace(each, help=tuple(_kept(replace(each, help=fixes), found, again))))
    return tuple(told)


def _kept(finding: Diagnostic, found: Found, again: Again) -> Iterator[Help]:
    for help_ in finding.help:
        kept = [i for i, edit in enumerate(help_.edits) if _mends(finding, found, again(edit))]
        if kept:
            values = tuple(help_.values[i] for i in kept) if help_.values else ()
            yield Help(text=help_.text, edits=tuple(help_.edits[i] for i in kept), values=values)


def _mends(finding: Diagnostic, before: Found, after: Found) -> bool:
    if after.step != before.step:
        return after.step > before.step
    known = {(each.code, each.message) for each in before.findings}
    left = {(each.code, each.message) for each in after.findings}
    return left <= known - {(finding.code, finding.message)}
