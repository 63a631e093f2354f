"""`[saved]`: the values that a module's forward leaves for its backward, each storage once.

    "layers.*.feed_forward.w2" = { "input.input" = 4 }
    "norm"                     = { "input.x" = 2, "batch seq: float32" = 1 }

A key is a port of the module, for as many values of its size as the number says, or names of
dimensions; in the element type that is computed in, unless one is named. What two modules share
stands at one of them. With the table, a module that it does not name leaves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..language.spec import SAVED_BYTES
from ..language.toml import Node
from ..near import near
from ..source import Span
from .dims import parse_dims
from .fields import Fields
from .model import RUN_SIZES, Boundary, SavedEntry


def read_saved(
    tables: Mapping[str, Node], boundaries: tuple[Boundary, ...], fields: Fields
) -> tuple[SavedEntry, ...] | None:
    """What each module leaves, or None for a card that does not say."""
    if "saved" not in tables:
        return None
    known = {boundary.module: boundary for boundary in boundaries}
    found: list[SavedEntry] = []
    for key, node in fields.table(tables["saved"], "`saved`").items():
        span = node.key or node.span
        places = [place.fqn for place in fields.names(key, span)]
        if lost := next((place for place in places if place not in known), None):
            fields.add("card-pattern", f"`{lost}` has no boundary in [activation]", span, guess=near(lost, known))
            continue
        for entry in fields.table(node, "what a module leaves, with how often for each value,").items():
            found += _entries(places, known, *entry, fields)
    return tuple(found)


def _entries(
    places: list[str], known: Mapping[str, Boundary], value: str, node: Node, fields: Fields
) -> Iterator[SavedEntry]:
    """One value, for each of the modules that its line names."""
    text, colon, dtype = (part.strip() for part in value.partition(":"))
    span = node.key or node.span
    if isinstance(node.value, bool) or not isinstance(node.value, int) or node.value < 1:
        fields.add("wrong-type", f"how often `{text}` is left is a whole number, 1 or more", node.span)
    elif colon and dtype not in SAVED_BYTES:
        fields.add("card-dims", f"`{dtype}` is no element type", span, guess=near(dtype, SAVED_BYTES))
    else:
        for place in places:
            ports = dict(known[place].ports())
            names = () if text in ports else _names(text, ports, span, fields)
            if names is None:
                return
            yield SavedEntry(
                module=place, port=text if text in ports else None, dims=names, dtype=dtype or None, count=node.value
            )


def _names(text: str, ports: Mapping[str, object], span: Span, fields: Fields) -> tuple[tuple[str, ...], ...] | None:
    """The dimensions that a key names, or None with a finding."""
    try:
        dims = parse_dims(text)
    except ValueError:
        dims = ()
    have = {*fields.sizes, *RUN_SIZES}
    lost = next((name for factors in dims for name in factors if name not in have), None)
    if dims and lost is None:
        return dims
    message = f"`{text}` is no port of the module, and names no dimensions that have sizes"
    fields.add("card-dims", message, span, guess=near(text, ports))
    return None
