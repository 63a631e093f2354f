"""`--set key=value` items of the command line -> one tree."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ..diagnostics import Bag, Diagnostic, Label
from ..source import Source
from .findings import unknown_key
from .merge import beside
from .toml import Node, scan

#: The name that findings call an item's text by.
FLAG = "--set"

_ITEM = re.compile(r"""\s*(?P<key>(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^"'=])+)=[ \t]*(?P<value>.*?)\s*""", re.DOTALL)
_BARE_WORD = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./:+*#-]*")


def read_sets(items: Sequence[str], bag: Bag) -> Node | None:
    """All items as one tree, empty when there are none; None when one is malformed."""
    empty = Source(name=FLAG, text="")
    root = Node(value={}, key=None, span=empty.span(0, 0))
    nodes = [_read_item(item, bag) for item in items]
    for node in nodes:
        if node is None:
            return None
        if "include" in node.value:
            bag.add(unknown_key(f"`{FLAG}`", "include", node.value["include"], (), None))
            return None
        root = beside(root, node, bag, where="twice by `--set`")
    return root


def _read_item(item: str, bag: Bag) -> Node | None:
    """One item; a bare word that is no TOML value is taken as a string; a wrong key is shown as written."""
    source = Source(name=FLAG, text=item)
    stray = re.search("[\n\r\ud800-\udfff]", item)
    if stray is not None:
        return _refuse(source, f"the character {stray[0]!r} may not stand in `--set`", stray.span(), bag)
    found = _ITEM.fullmatch(item)
    if found is None or item.lstrip().startswith("["):
        return _refuse(source, f"`{item}` is no `key=value`; `mesh.tp=8` is", (0, len(item)), bag)
    start, end = found.span("value")
    if _BARE_WORD.fullmatch(item[start:end]) is None:
        return scan(source, bag)
    if scan(source, Bag()) is not None:
        return scan(source, bag)
    quoted = Source(name=FLAG, text=f'{item[:start]}"{item[start:end]}"')
    node = scan(quoted, Bag())
    return scan(source, bag) if node is None else _moved(node, source, end)


def _moved(node: Node, source: Source, end: int) -> Node:
    """The same tree with places in the item as written, which lacks the two quotes."""
    inner = node.value
    if isinstance(inner, dict):
        inner = {name: _moved(each, source, end) for name, each in inner.items()}
    key = node.key and source.span(node.key.start, node.key.end)
    return replace(node, value=inner, key=key, span=source.span(node.span.start, min(node.span.end, end)))


def _refuse(source: Source, message: str, place: tuple[int, int], bag: Bag) -> None:
    bag.add(Diagnostic(code="syntax", message=message, label=Label(span=source.span(*place))))
