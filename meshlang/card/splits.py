"""`[split]`: the words that a pipeline's split is written in -> the modules that each stands for, first to last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..language.toml import Node
from .fields import Fields
from .model import Model, SplitWord

_WORD = "a word of a split is made of letters, digits and `_`, and starts with a letter"


def read_split(tables: Mapping[str, Node], model: Model, fields: Fields) -> tuple[SplitWord, ...]:
    """The words in the order in which a value passes through their modules; none without the table.

    One word may stand for many modules, by a star: a split says how many of them a stage has.
    """
    entries = fields.table(tables.get("split"), "`split`")
    before = len(fields.bag)
    words = [word for name, node in entries.items() if (word := _word(name, node, fields)) is not None]
    if len(fields.bag) > before or not words:
        return ()
    split = _Split(words=words, entries=entries, model=model, fields=fields)
    split.one_star()
    split.all_held()
    split.in_order()
    return tuple(words) if len(fields.bag) == before else ()


def _word(name: str, node: Node, fields: Fields) -> SplitWord | None:
    if not name.isidentifier():
        fields.add("card-split", f"`{name}` is no word: {_WORD}", node.key or node.span)
        return None
    text = fields.text(node, "the modules that a word of `split` stands for")
    places = fields.names(text, node.span) if text is not None else ()
    modules = tuple(place.fqn for place in places)
    return SplitWord(name=name, modules=modules, counted="*" in (text or "")) if modules else None


@dataclass(frozen=True, kw_only=True)
class _Split:
    """The words as read, and where they stand."""

    words: Sequence[SplitWord]
    entries: Mapping[str, Node]
    model: Model
    fields: Fields

    def add(self, word: SplitWord, message: str, *notes: str) -> None:
        self.fields.add("card-split", message, self.entries[word.name].span, notes=notes)

    def one_star(self) -> None:
        """A bare number in a split counts modules of one word."""
        for word in [word for word in self.words if word.counted][1:]:
            self.add(word, "a second word has a star, and a number in a split counts the modules of one word")

    def all_held(self) -> None:
        """Each tensor lies in exactly one of the modules, and each module holds one."""
        owner = {module: word for word in self.words for module in word.modules}
        held: set[str] = set()
        lost: list[str] = []
        for tensor in self.model.tensors:
            for fqn in (tensor.fqn, *tensor.tied):
                over = [module for module in _above(fqn) if module in owner]
                held.update(over)
                if not over:
                    lost.append(fqn)
                for module in over[1:]:
                    self.add(owner[module], f"`{fqn}` lies in `{over[0]}` and in `{module}`")
        if lost:
            more = f", and {len(lost) - 1} more" if len(lost) > 1 else ""
            self.add(self.words[-1], f"`{lost[0]}` lies in no module of `split`{more}")
        for word in self.words:
            empty = [module for module in word.modules if module not in held]
            if empty:
                self.add(word, f"no tensor lies in `{empty[0]}`")

    def in_order(self) -> None:
        """What takes the model's input is first, what gives its output last, as far as `flow` says."""
        place = {module: word for word in self.words for module in word.modules}
        for (module, port), (other, _) in self.model.flow.items():
            if not module and other in place and place[other] is not self.words[0]:
                self.add(place[other], f"`{other}` takes the model's {port}, and is not first", _LINES)
            if not other and module in place and place[module] is not self.words[-1]:
                self.add(place[module], f"`{module}` gives the model's output, and is not last", _LINES)


_LINES = "the lines of `split` stand in the order that a value passes through the modules"


def _above(fqn: str) -> list[str]:
    """Every module around a tensor, outermost first."""
    parts = fqn.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]
