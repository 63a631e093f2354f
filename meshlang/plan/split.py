"""The split of a pipeline: `embed + 1 | 2 | 2 | 1 + norm + head` -> the modules of each stage.

A word stands for its modules, a number for the next so many modules of the word that counts.
Every module of the model is in one stage, and stages follow the order of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..card.model import Model, SplitWord
from ..diagnostics import Bag, Diagnostic, Edit, Help, Label
from ..fold import fold
from ..language.spec import Written
from ..near import near
from ..source import Span
from .balance import balanced
from .words import listed, rename

Parts = tuple[tuple[str, ...], ...]

#: How a spec says that the split is left to `balanced`; leaving `split` out says the same.
BALANCE = "balance"
#: Digits of a number that counts layers.
MOST_DIGITS = 9


@dataclass(frozen=True)
class Term:
    """A word or a number of a split, and where it stands."""

    text: str
    span: Span


def read_split(written: Written[str], model: Model, bag: Bag) -> Parts:
    """The modules of each stage, or () with all findings in the bag."""
    before = len(bag)
    terms = [_terms(written, start, text) for start, text in _cut(written.value, 0, "|")]
    for part in terms:
        for finding in _unreadable(part, model):
            bag.add(finding)
    if len(bag) > before:
        return ()
    used = _Used(model=model, terms=terms)
    for finding in used.findings():
        bag.add(_with_balance(finding, written, len(terms), model))
    return used.parts if len(bag) == before else ()


def _cut(text: str, start: int, mark: str) -> Iterator[tuple[int, str]]:
    """(offset, piece) between marks."""
    for piece in text.split(mark):
        yield start, piece
        start += len(piece) + 1


def _terms(written: Written[str], start: int, text: str) -> list[Term]:
    found = []
    for offset, piece in _cut(text, start, "+"):
        word = piece.strip()
        at = offset + len(piece) - len(piece.lstrip())
        found.append(Term(text=word, span=_inside(written, at, at + len(word))))
    return found


def _inside(written: Written[str], start: int, end: int) -> Span:
    """The place of some characters of a string, or of all of it where it is written with escapes."""
    if written.span.text[1:-1] != written.value or start == end:
        return written.span
    offset = written.span.start + 1
    return written.span.source.span(offset + start, offset + end)


def _unreadable(part: Sequence[Term], model: Model) -> Iterator[Diagnostic]:
    """Terms that are no word and no number."""
    words = {word.name: word for word in model.split}
    for term in part:
        if not term.text:
            what = "a `+` has a word or a number on both sides" if len(part) > 1 else "a stage holds some module"
            yield _finding("bad-split", what, term.span, 'stages are parted by "|", what a stage holds by "+"')
        elif term.text.isdecimal() and term.text.isascii():
            if not any(word.counted for word in model.split):
                yield _finding("bad-split", f"the card of `{model.name}` has no word that numbers count", term.span)
            elif len(term.text) > MOST_DIGITS or int(term.text) == 0:
                yield _finding("bad-split", "a number in a split is from 1 to 999999999", term.span)
        elif term.text not in words:
            message = f"`{term.text}` is no number, and no word of the split of `{model.name}`"
            finding = _finding("bad-split", message, term.span, f"its words are {listed(words)}")
            yield replace(finding, help=rename(term.span, near(term.text, words)))


def _finding(code: str, message: str, span: Span, *notes: str) -> Diagnostic:
    return Diagnostic(code=code, message=message, label=Label(span=span), notes=notes)


class _Used:
    """Which term uses which modules."""

    def __init__(self, *, model: Model, terms: Sequence[Sequence[Term]]) -> None:
        self.model = model
        self.words = {word.name: word for word in model.split}
        self.counted = next((word for word in model.split if word.counted), None)
        self.uses: list[list[tuple[Term, tuple[str, ...]]]] = []
        self.taken = 0
        for part in terms:
            self.uses.append([(term, self._modules(term)) for term in part])

    def _modules(self, term: Term) -> tuple[str, ...]:
        if not term.text.isdecimal():
            return self.words[term.text].modules
        assert self.counted is not None
        first, self.taken = self.taken, self.taken + int(term.text)
        return self.counted.modules[first : self.taken]

    @property
    def parts(self) -> Parts:
        """The modules of each stage."""
        return tuple(tuple(module for _, modules in part for module in modules) for part in self.uses)

    def findings(self) -> list[Diagnostic]:
        """What stands against the split; the order only where nothing else does."""
        return [*self._beyond(), *self._twice(), *self._missing()] or [*self._out_of_order()]

    def _flat(self) -> Iterator[tuple[Term, tuple[str, ...]]]:
        for part in self.uses:
            yield from part

    def _beyond(self) -> Iterator[Diagnostic]:
        """Numbers that count more modules than there are."""
        if self.counted is None or self.taken <= len(self.counted.modules):
            return
        left = len(self.counted.modules)
        for term, _ in self._flat():
            if not term.text.isdecimal():
                continue
            left -= int(term.text)
            if left < 0:
                message = f"the split counts {self.taken} {self.counted.name}, and `{self.model.name}` has "
                yield _finding("split-twice", message + str(len(self.counted.modules)), term.span)
                return

    def _twice(self) -> Iterator[Diagnostic]:
        owner: dict[str, Term] = {}
        for term, modules in self._flat():
            again = [module for module in modules if module in owner]
            if again:
                message = f"{listed(fold(again, self._known))} {_are(again)} in two places of the split"
                first = Label(span=owner[again[0]].span, text="first here")
                yield replace(_finding("split-twice", message, term.span), labels=(first,))
            owner.update({module: term for module in modules if module not in owner})

    @property
    def _known(self) -> list[str]:
        return [module for word in self.model.split for module in word.modules]

    def _missing(self) -> Iterator[Diagnostic]:
        used = {module for _, modules in self._flat() for module in modules}
        lost = [module for module in self._known if module not in used]
        if not lost:
            return
        words = [word for word in self.model.split if any(module in lost for module in word.modules)]
        last = self.uses[-1][-1][0]
        message = f"{listed(fold(lost, self._known))} {_are(lost)} in no stage of the split"
        yield _finding("split-misses", message, last.span, *map(self._said, words))

    def _said(self, word: SplitWord) -> str:
        if not word.counted:
            return f"`{word.name}` stands for {listed(word.modules)}"
        return f"the split counts {min(self.taken, len(word.modules))} of {len(word.modules)} {word.name}"

    def _out_of_order(self) -> Iterator[Diagnostic]:
        place = {module: index for index, module in enumerate(self._known)}
        before: Term | None = None
        reached = -1
        for term, modules in self._flat():
            if modules and before is not None and place[modules[0]] < reached:
                message = f"`{term.text}` stands behind `{before.text}`, and a value passes through it first"
                order = " + ".join(word.name for word in self.model.split)
                finding = _finding("split-order", message, term.span, f"the model's order is {order}")
                yield replace(finding, labels=(Label(span=before.span, text="behind this"),))
                return
            if modules:
                before, reached = term, place[modules[-1]]


def _are(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"


def _with_balance(finding: Diagnostic, written: Written[str], count: int, model: Model) -> Diagnostic:
    """The finding, with the balanced split of as many stages as a fix."""
    parts = balanced(model, count)
    if not parts:
        return finding
    text = f'"{split_text(model, parts)}"'
    edit = Edit(span=written.span, text=text)
    return replace(finding, help=(Help(text="balanced by cost: {}", edits=(edit,), values=(text,)),))


def split_text(model: Model, parts: Parts) -> str:
    """Stages in the notation of a split; read_split(split_text(parts)) == parts."""
    return " | ".join(" + ".join(_words_of(model, part)) for part in parts)


def _words_of(model: Model, part: Sequence[str]) -> Iterator[str]:
    for word in model.split:
        mine = [module for module in part if module in word.modules]
        if mine:
            yield str(len(mine)) if word.counted else word.name
