"""`[activation]` and `[flow]`: what crosses module boundaries, and which of it is one value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..diagnostics import Label
from ..language.toml import Node
from ..near import near
from ..source import Span
from .dims import dims_text
from .expand import at
from .fields import Fields
from .model import Boundary, Factors, Port, around

_KEYS = ("input", "output", "whole", "added", "made")


def read_boundaries(tables: Mapping[str, Node], fields: Fields) -> tuple[Boundary, ...]:
    """Every boundary, in the order of the text."""
    found: dict[str, Boundary] = {}
    for key, node in fields.table(tables.get("activation"), "`activation`").items():
        span = node.key or node.span
        entries = fields.table(node, "a boundary, with `input.NAME`, `output`, `whole`, `added`, `made`,")
        fields.keys(entries, _KEYS, "a boundary")
        inputs = fields.table(entries.get("input"), "`input`, with an entry for each argument,")
        ports = tuple((name, fields.dims(port)) for name, port in inputs.items())
        output = fields.dims(entries["output"]) if "output" in entries else None
        words = tuple(word.value for word in fields.nodes(entries.get("whole"), "`whole`"))
        whole = tuple(word for word in words if "." not in word)
        pairs = tuple((head, name) for head, dot, name in (word.partition(".") for word in words) if dot)
        added = tuple(word.value for word in fields.nodes(entries.get("added"), "`added`"))
        made = tuple(word.value for word in fields.nodes(entries.get("made"), "`made`"))
        for place in fields.names(key, span):
            if place.fqn in found:
                also = (Label(span=found[place.fqn].span, text="also here"),)
                fields.add("card-twice", f"the boundary of `{place.fqn}` is described twice", span, labels=also)
                continue
            found[place.fqn] = Boundary(
                module=place.fqn,
                inputs=ports,
                output=output,
                whole=whole,
                whole_inputs=pairs,
                added=added,
                made=made,
                span=span,
            )
    return tuple(found.values())


def read_flow(tables: Mapping[str, Node], boundaries: tuple[Boundary, ...], fields: Fields) -> dict[Port, Port]:
    """Port -> the port that its value goes on to, both of boundaries of the card."""
    ports = {(b.module, port): dims for b in boundaries for port, dims in b.ports()}
    modules = frozenset(boundary.module for boundary in boundaries)
    found: dict[Port, Port] = {}
    places: dict[Port, Span] = {}
    for key, node in fields.table(tables.get("flow"), "`flow`").items():
        target = fields.text(node, "the port that a value goes on to")
        for first, second in _pairs(key, target, node, fields) if target is not None else ():
            if not _known(first, key, node.key or node.span, ports, fields):
                break
            if not _known(second, node.value, node.span, ports, fields):
                break
            if not _legal(first, second, ports, modules, node, fields):
                break
            if second in places and not _joined(first, second, found, ports):
                also = (Label(span=places[second], text="from one here"),)
                fields.add("card-flow", f"`{_text(second)}` has its value from two ports", node.span, labels=also)
                continue
            found[first], places[second] = second, node.span
    return found


def _pairs(key: str, target: str, node: Node, fields: Fields) -> Iterator[tuple[Port, Port]]:
    module, _, port = key.rpartition(" ")
    other, _, onto = target.rpartition(" ")
    for place in fields.names(module, node.key or node.span):
        yield (place.fqn, port), (at(other, place.stars), onto)


def _joined(first: Port, second: Port, found: Mapping[Port, Port], ports: Mapping[Port, tuple[Factors, ...]]) -> bool:
    """Inputs of the model that are parts of one value inside: the model puts them together."""
    sources = (first, *(source for source, target in found.items() if target == second))
    return all(port != "output" and ports[module, port] != ports[second] for module, port in sources)


def _text(port: Port) -> str:
    return f"{port[0]} {port[1]}".strip()


def _known(port: Port, written: str, span: Span, ports: Mapping[Port, object], fields: Fields) -> bool:
    if port in ports:
        return True
    guess = near(_text(port), map(_text, ports))
    notes = (f"the nearest is `{guess}`",) if guess else ()
    fields.add("card-flow", f"`{written}` is no port of a boundary", span, notes=notes)
    return False


def _legal(
    first: Port,
    second: Port,
    ports: Mapping[Port, tuple[Factors, ...]],
    modules: frozenset[str],
    node: Node,
    fields: Fields,
) -> bool:
    """The same value or, by inner factors, a part of it, between ports where nothing lies between.

    Only outermost factors are cut, so a part lies as the whole does.
    """
    one, other = ports[first], ports[second]
    if [factors[0] for factors in one] != [factors[0] for factors in other]:
        message = f"`{_text(first)}` is ({dims_text(one)}) and `{_text(second)}` is ({dims_text(other)})"
        note = "a value that goes on has the same dims at both; a part of it differs in inner factors only"
        fields.add("card-flow", message, node.span, notes=(note,))
        return False
    if _adjoin(first, second, modules):
        return True
    note = "an output goes on to the module around it, or to an input of a module beside it; an input of the model "
    note += "goes on to a module directly inside"
    message = f"the value of `{_text(first)}` cannot be that of `{_text(second)}`"
    fields.add("card-flow", message, node.span, notes=(note,))
    return False


def _adjoin(first: Port, second: Port, modules: frozenset[str]) -> bool:
    """Model input -> input inside; output -> output of the module around; output -> input beside."""
    inner, outer = around(first[0], modules), around(second[0], modules)
    if first[1] != "output":
        return not first[0] and second[1] != "output" and bool(second[0]) and not outer
    if second[1] == "output":
        return bool(first[0]) and (inner or "") == second[0]
    return bool(first[0]) and bool(second[0]) and first[0] != second[0] and (inner or "") == (outer or "")
