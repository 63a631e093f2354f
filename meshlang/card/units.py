"""`units`: modules whose parameters travel together when they are stored in parts."""

from __future__ import annotations

from collections.abc import Mapping

from ..language.toml import Node
from ..near import near
from .fields import Fields
from .model import TensorEntry, parent

Unit = tuple[str, ...]


def read_units(tables: Mapping[str, Node], tensors: tuple[TensorEntry, ...], fields: Fields) -> tuple[Unit, ...]:
    """Each unit as its modules. A string is one unit; one name with stars is a unit a layer."""
    holding = _holding(tensors)
    units: list[Unit] = []
    owner: set[str] = set()
    for node in fields.nodes(tables.get("units"), "`units`"):
        words = node.value.split() or [""]
        places = [place.fqn for word in words for place in fields.names(word, node.span)]
        for module in places:
            if module not in holding:
                notes = (f"the nearest is `{guess}`",) if (guess := near(module, holding)) else ()
                fields.add("card-pattern", f"no parameter lies in the unit `{module}`", node.span, notes=notes)
            if _inside(module, owner) or any(_inside(other, {module}) for other in owner):
                fields.add("card-twice", f"`{module}` lies in two units", node.span)
            owner.add(module)
        units += [tuple(places)] if len(words) > 1 else [(module,) for module in places]
    return _merge_tied(units, tensors)


def _holding(tensors: tuple[TensorEntry, ...]) -> frozenset[str]:
    """Every module with a parameter in or under it."""
    found: set[str] = set()
    for tensor in tensors:
        for name in (tensor.fqn, *tensor.tied) if tensor.kind == "parameter" else ():
            module = parent(name)
            while module not in found:
                found.add(module)
                module = parent(module)
    return frozenset(found)


def _inside(module: str, known: set[str]) -> bool:
    """True when the module or one around it is known."""
    while module not in known:
        if not module:
            return False
        module = parent(module)
    return True


def _merge_tied(units: list[Unit], tensors: tuple[TensorEntry, ...]) -> tuple[Unit, ...]:
    """Units that share a tied tensor become one: a buffer of parameters has one owner."""
    merged = [list(unit) for unit in units]
    for tensor in tensors:
        if not tensor.tied:
            continue
        names = (tensor.fqn, *tensor.tied)
        touched = [unit for unit in merged if any(_inside(name, set(unit)) for name in names)]
        for unit in touched[1:]:
            touched[0].extend(unit)
            merged.remove(unit)
    return tuple(tuple(unit) for unit in merged)
