"""Findings as data: what is wrong, where, with the numbers, and a fix that was tried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .source import Source, Span


@dataclass(frozen=True, kw_only=True)
class Label:
    """A place in a source and what to say of it."""

    span: Span
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Replace the characters of `span` by `text`."""

    span: Span
    text: str

    def applied(self) -> Source:
        """The span's source, with the edit made."""
        source = self.span.source
        return Source(name=source.name, text=source.text[: self.span.start] + self.text + source.text[self.span.end :])


@dataclass(frozen=True, kw_only=True)
class Help:
    """A fix to offer.

    Each of `edits` is an alternative. The compiler applies them one by one and keeps those
    with which the finding goes away and no other comes; a help without any is dropped.
    `{}` in `text` stands for the values, parallel to `edits`, that were kept.
    """

    text: str
    edits: tuple[Edit, ...]
    values: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """One finding.

    `code` is a word with a page of its own, `label` the place it is about, `labels` the other
    side of a conflict. Two findings with the same `code`, `label` and `message` are one.
    """

    code: str
    message: str
    label: Label
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: tuple[Help, ...] = ()


def counted(number: int, thing: str, *, does: bool = False) -> str:
    """A number of things in words, "1 rank" or "4 microbatches"; or what it does: "1 rank does", "8 ranks do"."""
    noun, space, rest = thing.partition(" ")
    ending = "" if number == 1 else "es" if noun.endswith(("ch", "s", "x")) else "s"
    verb = (" does" if number == 1 else " do") if does else ""
    return f"{number} {noun}{ending}{space}{rest}{verb}"


class SpecError(Exception):
    """All findings of the stage that could not go on; raised once."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("; ".join(f"{d.label.span}: {d.code}: {d.message}" for d in self.diagnostics))


class Bag:
    """Collects the findings of a stage, each once, in the order of their places."""

    def __init__(self) -> None:
        self._findings: dict[tuple[object, ...], Diagnostic] = {}

    def add(self, diagnostic: Diagnostic) -> None:
        """Keep a finding; one equal in code, place and message is already there."""
        span = diagnostic.label.span
        key = (diagnostic.code, span.source.name, span.start, span.end, diagnostic.message)
        self._findings.setdefault(key, diagnostic)

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(sorted(self._findings.values(), key=_place))

    def __len__(self) -> int:
        return len(self._findings)

    def check(self) -> None:
        """Go on when nothing was found.

        Raises:
            SpecError: with every finding.
        """
        if self._findings:
            raise SpecError(self)


def _place(diagnostic: Diagnostic) -> tuple[str, int, int, str]:
    span = diagnostic.label.span
    return span.source.name, span.start, span.end, diagnostic.code
