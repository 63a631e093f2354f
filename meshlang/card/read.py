"""Card text -> one flavor, written out. A card is read with the same care as a spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..diagnostics import Bag, Diagnostic, Edit, Help, Label
from ..language.toml import Node, scan
from ..near import near
from ..source import Source, Span
from .expand import ExpandError, Expansion, at, expand
from .model import RUN_SIZES, Boundary, Factors, Loss, Model, Port, TensorEntry, parent

_TOP = ("card", "model", "whole", "units", "flavor", "param", "buffer", "activation", "flow", "same", "tied", "loss")


def flavors(source: Source, bag: Bag) -> tuple[str, ...]:
    """The names of a card's flavors, in the order that they stand in."""
    root = scan(source, bag)
    return tuple(_table(root.value, "flavor", bag)) if root is not None else ()


def read_card(source: Source, flavor: str, bag: Bag, *, at_span: Span | None = None) -> Model | None:
    """The model that `flavor` of the card in `source` describes, or None with findings in the bag.

    Args:
        at_span: where a spec names the flavor; an unknown flavor is a finding there.
    """
    root = scan(source, bag)
    if root is None:
        return None
    reader = _Reader(source=source, bag=bag, root=root)
    before = len(bag)
    model = reader.model(flavor, at_span)
    return model if len(bag) == before else None


@dataclass(frozen=True)
class _Reader:
    """Reads the tables of one card into the bag."""

    source: Source
    bag: Bag
    root: Node

    def model(self, flavor: str, at_span: Span | None) -> Model | None:
        tables: Mapping[str, Node] = self.root.value
        for key, node in tables.items():
            if key not in _TOP:
                self._add("unknown-key", f"a card has no `{key}`", node.key or node.span, near_name=near(key, _TOP))
        if self._version() is None:
            return None
        sizes, tied = self._sizes(flavor, at_span)
        if sizes is None:
            return None
        tensors = self._tensors(sizes, self._tied() if tied else {})
        boundaries = tuple(self._boundaries(sizes))
        units = tuple(self._units(sizes))
        name = tables["model"].value if "model" in tables else ""
        model = Model(
            name=f"{name}/{flavor}",
            sizes=sizes,
            tensors=tensors,
            boundaries=boundaries,
            flow=dict(self._flow(sizes)),
            same=self._same(),
            whole=frozenset(self._words("whole")),
            units=_merge_tied(units, tensors),
            loss=self._loss(),
            span=tables["model"].span if "model" in tables else self.root.span,
        )
        self._check_sizes(model)
        return model

    def _version(self) -> int | None:
        node = self.root.value.get("card")
        if node is None:
            self._add("missing-key", "a card says its version: `card = 1`", self.source.span(0, 0))
            return None
        if node.value != 1:
            self._add("unknown-version", f"cards of version 1 are known, not {node.value!r}", node.span)
            return None
        return 1

    def _sizes(self, flavor: str, at_span: Span | None) -> tuple[dict[str, int] | None, bool]:
        known = _table(self.root.value, "flavor", self.bag)
        if flavor not in known:
            where = at_span or self.root.span
            names = ", ".join(known)
            guess = near(flavor, known)
            message = f"`{self.source.name}` has no flavor `{flavor}`"
            self._add("unknown-flavor", message, where, near_name=guess, notes=(f"it has {names}",))
            return None, False
        sizes: dict[str, int] = {}
        tied = False
        for name, node in known[flavor].value.items():
            if name == "tied":
                tied = node.value is True
            elif isinstance(node.value, int) and not isinstance(node.value, bool) and node.value > 0:
                sizes[name] = node.value
            else:
                self._add("wrong-type", f"size `{name}` is a whole number of 1 or more", node.span)
        return sizes, tied

    def _tied(self) -> dict[str, str]:
        return {name: node.value for name, node in _table(self.root.value, "tied", self.bag).items()}

    def _tensors(self, sizes: Mapping[str, int], tied: Mapping[str, str]) -> tuple[TensorEntry, ...]:
        found: dict[str, TensorEntry] = {}
        for kind, table in (("parameter", "param"), ("buffer", "buffer")):
            for key, node in _table(self.root.value, table, self.bag).items():
                for name, leaf in _leaves(node):
                    for place in self._expand(key, sizes, node.key or node.span):
                        fqn = f"{place.fqn}.{name}" if place.fqn else name
                        self._tensor(found, fqn, kind, leaf)
        for second, first in tied.items():
            if first in found and second in found:
                other = found.pop(second)
                found[first] = _with_tie(found[first], other.fqn)
        return tuple(found.values())

    def _tensor(self, found: dict[str, TensorEntry], fqn: str, kind: Any, leaf: Node) -> None:
        dims = self._dims(leaf)
        if fqn in found:
            also = (Label(span=found[fqn].span, text="also here"),)
            self._add("card-twice", f"`{fqn}` is described twice", leaf.span, labels=also)
            return
        found[fqn] = TensorEntry(fqn=fqn, module=parent(fqn), kind=kind, dims=dims, span=leaf.span)

    def _boundaries(self, sizes: Mapping[str, int]) -> Iterator[Boundary]:
        for key, node in _table(self.root.value, "activation", self.bag).items():
            if not isinstance(node.value, dict):
                self._add("wrong-type", "a boundary is a table with `input.NAME`, `output`, `whole`", node.span)
                continue
            for word, entry in node.value.items():
                if word not in ("input", "output", "whole"):
                    self._add("unknown-key", f"a boundary has no `{word}`", entry.key or entry.span)
            inputs = tuple((n, self._dims(v)) for n, v in _table(node.value, "input", self.bag).items())
            output = self._dims(node.value["output"]) if "output" in node.value else None
            whole = self._list(node.value["whole"]) if "whole" in node.value else ()
            for place in self._expand(key, sizes, node.key or node.span):
                yield Boundary(module=place.fqn, inputs=inputs, output=output, whole=whole, span=node.key or node.span)

    def _flow(self, sizes: Mapping[str, int]) -> Iterator[tuple[Port, Port]]:
        for key, node in _table(self.root.value, "flow", self.bag).items():
            if not isinstance(node.value, str):
                self._add("wrong-type", "a flow names the port that the value goes on to", node.span)
                continue
            for place in self._expand(key, sizes, node.key or node.span):
                yield _port(place.fqn), _port(at(node.value, place.stars))

    def _units(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
        node = self.root.value.get("units")
        for word in node.value if node is not None else ():
            parts = str(word.value).split()
            if len(parts) > 1:
                yield tuple(parts)
                continue
            yield from ((place.fqn,) for place in self._expand(parts[0], sizes, word.span))

    def _same(self) -> dict[str, str]:
        return {name: node.value for name, node in _table(self.root.value, "same", self.bag).items()}

    def _loss(self) -> Loss | None:
        table = _table(self.root.value, "loss", self.bag)
        if not table:
            return None
        return Loss(logits=self._dims(table["logits"]), vocab=str(table["vocab"].value))

    def _words(self, key: str) -> tuple[str, ...]:
        return self._list(self.root.value[key]) if key in self.root.value else ()

    def _list(self, node: Node) -> tuple[str, ...]:
        if not isinstance(node.value, tuple) or not all(isinstance(item.value, str) for item in node.value):
            self._add("wrong-type", "a list of dimension names is expected here", node.span)
            return ()
        return tuple(item.value for item in node.value)

    def _dims(self, node: Node) -> tuple[Factors, ...]:
        if not isinstance(node.value, str):
            self._add("wrong-type", 'dimension names are expected here, such as "vocab embed"', node.span)
            return ()
        try:
            return parse_dims(node.value)
        except ValueError as error:
            self._add("card-dims", str(error), node.span)
            return ()

    def _expand(self, text: str, sizes: Mapping[str, int], span: Span) -> tuple[Expansion, ...]:
        try:
            return tuple(expand(text, sizes))
        except ExpandError as error:
            self._add("card-pattern", str(error), span)
            return ()

    def _check_sizes(self, model: Model) -> None:
        known = {*model.sizes, *RUN_SIZES}
        for tensor in model.tensors:
            for name in sorted(tensor.names - model.sizes.keys()):
                self._size_missing(model.name, name, tensor.span, known)
        for boundary in model.boundaries:
            for _, dims in boundary.ports():
                for name in sorted({n for factors in dims for n in factors} - known):
                    self._size_missing(model.name, name, boundary.span, known)

    def _size_missing(self, flavor: str, name: str, span: Span, known: set[str]) -> None:
        self._add("card-size", f"flavor `{flavor}` gives no size for `{name}`", span, near_name=near(name, known))

    def _add(
        self,
        code: str,
        message: str,
        span: Span,
        *,
        near_name: str | None = None,
        notes: tuple[str, ...] = (),
        labels: tuple[Label, ...] = (),
    ) -> None:
        fixes = ()
        if near_name:
            fixes = (Help(text=f"did you mean `{near_name}`?", edits=(Edit(span=span, text=near_name),)),)
        self.bag.add(
            Diagnostic(code=code, message=message, label=Label(span=span), labels=labels, notes=notes, help=fixes)
        )


def parse_dims(text: str) -> tuple[Factors, ...]:
    """`"(heads head_dim) embed"` -> `(("heads", "head_dim"), ("embed",))`.

    Raises:
        ValueError: parentheses do not pair, or a word is no name.
    """
    dims: list[Factors] = []
    group: list[str] | None = None
    for word in text.replace("(", " ( ").replace(")", " ) ").split():
        if word == "(" and group is None:
            group = []
        elif word == ")" and group:
            dims.append(tuple(group))
            group = None
        elif word.isidentifier() and group is None:
            dims.append((word,))
        elif word.isidentifier() and group is not None:
            group.append(word)
        else:
            raise ValueError(f'`{text}`: expected names and pairs of parentheses, such as "(heads head_dim) embed"')
    if group is not None:
        raise ValueError(f"`{text}`: a parenthesis is open")
    return tuple(dims)


def _port(text: str) -> Port:
    module, _, port = text.rpartition(" ")
    return module, port


def _table(tables: Mapping[str, Node], key: str, bag: Bag) -> Mapping[str, Node]:
    node = tables.get(key)
    if node is None:
        return {}
    if isinstance(node.value, dict):
        return node.value
    bag.add(Diagnostic(code="wrong-type", message=f"`{key}` is a table", label=Label(span=node.span)))
    return {}


def _leaves(node: Node) -> Iterator[tuple[str, Node]]:
    """A string is short for { weight = ... }."""
    if isinstance(node.value, dict):
        yield from node.value.items()
    else:
        yield "weight", node


def _with_tie(tensor: TensorEntry, other: str) -> TensorEntry:
    """The tensor under the name that comes first in the model, as torch's named_parameters() has it."""
    return TensorEntry(
        fqn=other, module=parent(other), kind=tensor.kind, dims=tensor.dims, span=tensor.span, tied=(tensor.fqn, *tensor.tied)
    )


def _merge_tied(units: tuple[tuple[str, ...], ...], tensors: tuple[TensorEntry, ...]) -> tuple[tuple[str, ...], ...]:
    """Units that share a tied tensor become one: a buffer of parameters has one owner."""
    merged = [list(unit) for unit in units]
    for tensor in tensors:
        holders = {parent(name) for name in tensor.tied} | {tensor.module}
        touched = [unit for unit in merged if holders & set(unit)]
        if tensor.tied and len(touched) > 1:
            for unit in touched[1:]:
                touched[0].extend(unit)
                merged.remove(unit)
    return tuple(tuple(unit) for unit in merged)
