"""Two trees as one."""

from __future__ import annotations

from dataclasses import replace

from ..diagnostics import Bag, Diagnostic, Label
from .toml import Node


def over(upper: Node, lower: Node) -> Node:
    """Tables merge deeply; where both have a value that is no table, the upper's is kept.

    A table that both have stands where its header or its braces are, the upper's first.
    """
    if not (isinstance(upper.value, dict) and isinstance(lower.value, dict)):
        return upper
    inner = dict(lower.value)
    for name, node in upper.value.items():
        inner[name] = over(node, inner[name]) if name in inner else node
    return replace(upper if upper.span.text[:1] in ("[", "{") else lower, value=inner)


def beside(first: Node, second: Node, bag: Bag, *, where: str, path: tuple[str, ...] = ()) -> Node:
    """Tables merge deeply; a value that both set is an `include-conflict` that shows both."""
    if first == second:
        return first
    if isinstance(first.value, dict) and isinstance(second.value, dict):
        inner = dict(first.value)
        for name, node in second.value.items():
            both = name in inner
            inner[name] = beside(inner[name], node, bag, where=where, path=(*path, name)) if both else node
        return replace(first, value=inner)
    bag.add(
        Diagnostic(
            code="include-conflict",
            message=f"`{'.'.join(path)}` is set {where}",
            label=Label(span=second.key or second.span, text="and set again here"),
            labels=(Label(span=first.key or first.span, text="first set here"),),
            notes=("set it in the file that includes both, or in one of them",) if "file" in where else (),
        )
    )
    return first
