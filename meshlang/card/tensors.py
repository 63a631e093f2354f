"""`[param]`, `[buffer]` and `[tied]`: every tensor of a card by its fqn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

from ..diagnostics import Label
from ..language.toml import Node
from ..near import near
from ..source import Span
from .fields import Fields
from .model import Boundary, TensorEntry, around, leaves, parent

_TABLES: tuple[tuple[Literal["parameter", "buffer"], str], ...] = (("parameter", "param"), ("buffer", "buffer"))


def read_tensors(tables: Mapping[str, Node], fields: Fields) -> dict[str, TensorEntry]:
    """Fqn -> tensor, in the order of the text; no two are tied yet."""
    found: dict[str, TensorEntry] = {}
    for kind, table in _TABLES:
        for key, node in fields.table(tables.get(table), f"`{table}`").items():
            for name, leaf in _leaves(node):
                dims = fields.dims(leaf)
                at = (node.key or node.span) if leaf is node else (leaf.key or leaf.span)
                for place in fields.names(f"{key}.{name}" if key else name, at):
                    module = parent(place.fqn)
                    entry = TensorEntry(
                        fqn=place.fqn, module=module, kind=kind, dims=dims, span=leaf.span, key=node.key
                    )
                    _once(found, entry, fields)
    return found


def _leaves(node: Node) -> Iterator[tuple[str, Node]]:
    """A string is short for { weight = ... }."""
    if isinstance(node.value, dict):
        yield from node.value.items()
    else:
        yield "weight", node


def _once(found: dict[str, TensorEntry], entry: TensorEntry, fields: Fields) -> None:
    if entry.fqn not in found:
        found[entry.fqn] = entry
        return
    also = (Label(span=found[entry.fqn].span, text="also here"),)
    fields.add("card-twice", f"`{entry.fqn}` is described twice", entry.span, labels=also)


def tie(
    tables: Mapping[str, Node], tensors: Mapping[str, TensorEntry], fields: Fields, *, tied: bool
) -> tuple[TensorEntry, ...]:
    """The tensors; in a flavor with tied = true, those that `[tied]` makes one are one.

    `"a" = "b"` says that b is a under another name; a is the name that comes first in the model.
    """
    firsts: dict[str, str] = {}
    for first, node in fields.table(tables.get("tied"), "`tied`").items():
        second = fields.text(node, "the other name of a tied tensor")
        if second is not None and _tie_holds(first, second, node, tensors, fields):
            if second in firsts or _root(first, firsts) == second:
                fields.add("card-tie", f"`{second}` is tied to two tensors, or in a circle", node.span)
            else:
                firsts[second] = first
    if not tied:
        return tuple(tensors.values())
    others: dict[str, list[str]] = {}
    for second in firsts:
        others.setdefault(_root(second, firsts), []).append(second)
    kept = (entry for fqn, entry in tensors.items() if fqn not in firsts)
    return tuple(replace(entry, tied=tuple(others.get(entry.fqn, ()))) for entry in kept)


def _root(name: str, firsts: Mapping[str, str]) -> str:
    while name in firsts:
        name = firsts[name]
    return name


def _tie_holds(first: str, second: str, node: Node, tensors: Mapping[str, TensorEntry], fields: Fields) -> bool:
    """Both names are parameters of the card with the same dims."""
    parameters = [fqn for fqn, entry in tensors.items() if entry.kind == "parameter"]
    known = True
    for name, span in ((first, node.key or node.span), (second, node.span)):
        if name not in tensors or tensors[name].kind != "parameter":
            fields.add("card-tie", f"`{name}` is no parameter of the card", span, guess=near(name, parameters))
            known = False
    if not known or tensors[first].dims == tensors[second].dims:
        return known
    labels = tuple(Label(span=tensors[name].span, text=f"`{name}`") for name in (first, second))
    fields.add("card-tie", f"`{first}` and `{second}` have different dims", node.span, labels=labels)
    return False


def placed_in(
    tensors: tuple[TensorEntry, ...], boundaries: tuple[Boundary, ...], fields: Fields
) -> tuple[TensorEntry, ...]:
    """The tensors with the modules that compute with them.

    A parameter without one is a finding: nothing would say over which axes its gradient is a sum.
    """
    known = {boundary.module: boundary for boundary in boundaries}
    ends = leaves(known)
    lost: dict[Span, list[str]] = {}
    for tensor in tensors:
        for name in (tensor.fqn, *tensor.tied):
            if tensor.kind == "parameter" and around(name, known) not in ends:
                lost.setdefault(tensor.span, []).append(name)
    for span, names in lost.items():
        inner = around(names[0], known)
        message = f"no boundary says how `{_layers(names)}` is computed with"
        if inner is None:
            note = f"write an `[activation]` for `{parent(names[0])}`"
        else:
            note = f"the boundary around it, of `{inner}`, has others inside; only one without others speaks of weights"
        fields.add("card-boundary", message, span, notes=(note,))
    return tuple(replace(tensor, module=_computing(tensor, known, ends)) for tensor in tensors)


def _computing(tensor: TensorEntry, known: Mapping[str, Boundary], ends: frozenset[str]) -> str:
    holder = around(tensor.fqn, known)
    return holder if holder is not None and holder in ends else parent(tensor.fqn)


def _layers(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]}` .. `{names[-1]}"
