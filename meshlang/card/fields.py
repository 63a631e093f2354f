"""Typed access to the keys of a card. What is not of its type is a finding, and reads as empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..diagnostics import Bag, Diagnostic, Edit, Help, Label
from ..language.toml import Node
from ..near import near
from ..source import Source, Span
from .dims import named_twice, parse_dims
from .expand import MOST_NAMES, ExpandError, Expansion, expand
from .model import Factors

#: All names of a card together may stand for so many fqns, at each place where they are written.
MOST_OF_A_CARD = 50_000


@dataclass(kw_only=True)
class Written:
    """How many fqns were written out so far."""

    names: int = 0


@dataclass(frozen=True, kw_only=True)
class Fields:
    """One card's text and where its findings go; `sizes` are those of the flavor that is read."""

    source: Source
    bag: Bag
    sizes: Mapping[str, int] = field(default_factory=dict)
    written: Written = field(default_factory=Written)

    def table(self, node: Node | None, what: str) -> Mapping[str, Node]:
        """The entries of a table; none when there is no node."""
        if node is None:
            return {}
        if isinstance(node.value, dict):
            return node.value
        self.add("wrong-type", f"{what} is a table", node.span)
        return {}

    def text(self, node: Node, what: str) -> str | None:
        """A string, or None."""
        if isinstance(node.value, str):
            return node.value
        self.add("wrong-type", f"{what} is a string", node.span)
        return None

    def nodes(self, node: Node | None, what: str) -> tuple[Node, ...]:
        """The elements of an array of strings; none when there is no node."""
        if node is None:
            return ()
        if isinstance(node.value, tuple) and all(isinstance(item.value, str) for item in node.value):
            return node.value
        self.add("wrong-type", f"{what} is an array of strings", node.span)
        return ()

    def dims(self, node: Node) -> tuple[Factors, ...]:
        """The dims that a string names; a name is the outermost factor of one dim only."""
        if not isinstance(node.value, str):
            notes = ("a name with dots in it stands in quotes",) if isinstance(node.value, dict) else ()
            message = 'dimension names are expected here, such as "vocab embed"'
            self.add("wrong-type", message, node.span, notes=notes)
            return ()
        try:
            dims = parse_dims(node.value)
        except ValueError as error:
            self.add("card-dims", str(error), node.span)
            return ()
        twice = named_twice(dims)
        if twice is not None:
            note = "an axis that cuts it would cut both; two dims of one size have two names"
            self.add("card-dims", f"two dims are named `{twice}`", node.span, notes=(note,))
        return dims

    def names(self, text: str, span: Span) -> tuple[Expansion, ...]:
        """Every fqn that `text` stands for."""
        try:
            found = expand(text, self.sizes, min(MOST_NAMES, MOST_OF_A_CARD - self.written.names))
        except ExpandError as error:
            self.add("card-pattern", str(error), span)
            return ()
        self.written.names += len(found)
        return found

    def keys(self, entries: Mapping[str, Node], known: Iterable[str], what: str) -> None:
        """A finding for each key that is none of `known`."""
        for key, node in entries.items():
            if key not in known:
                span = node.key or node.span
                self.add("unknown-key", f"{what} has no `{key}`", span, guess=near(key, known))

    def add(
        self,
        code: str,
        message: str,
        span: Span,
        *,
        guess: str | None = None,
        notes: tuple[str, ...] = (),
        labels: tuple[Label, ...] = (),
    ) -> None:
        """A finding; `guess` is the name that was most likely meant."""
        help_ = (rename(span, guess),) if guess else ()
        label = Label(span=span)
        self.bag.add(Diagnostic(code=code, message=message, label=label, labels=labels, notes=notes, help=help_))


def rename(span: Span, guess: str) -> Help:
    """An offer to write `guess` in place of the name at `span`, in quotes where the text has them."""
    quote = span.text[:1] if span.text[:1] in ("'", '"') else ""
    return Help(text=f"did you mean `{guess}`?", edits=(Edit(span=span, text=f"{quote}{guess}{quote}"),))
