"""A spec's files -> one tree: includes, `--on` and `--set`, the nearer over the farther.

The root file has depth 0, what it includes depth 1, and so on. Tables merge deeply and a nearer
value replaces a farther one; arrays are values. Two files of one depth may not set the same key.
`--on NAME` lies over all files, and `--set` over everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..diagnostics import Bag, Diagnostic, Edit, Help, Label
from ..near import near
from ..source import Source
from .files import Files
from .findings import place
from .merge import over
from .sets import read_sets
from .toml import Node


@dataclass(frozen=True, kw_only=True)
class Document:
    """All files of one spec as one tree; each node keeps its own source.

    Attributes:
        source: the root file.
        root: everything merged, without `include`.
        sources: every file that was read, the root first.
        on: the machine that was chosen, or None.
    """

    source: Source
    root: Node
    sources: tuple[Source, ...]
    on: str | None = None


def load_document(
    source: Source,
    *,
    sets: Sequence[str] = (),
    on: str | None = None,
    overlay: Mapping[str, str] | None = None,
    inside: str | None = None,
    bag: Bag,
) -> Document | None:
    """The tree of a root file and all that it includes; None when there are findings.

    Args:
        source: the root file.
        sets: `key=value` items of the command line.
        on: name of a `[topology.on.NAME]` table to apply.
        overlay: name of a file -> text to read in its place.
        inside: the folder that every file has to lie in, or None.
        bag: collects `syntax`, `not-utf8`, `include-*`, `unknown-preset`, `unknown-version` and
            `unknown-machine`.
    """
    before = len(bag)
    files = Files(overlay=overlay or {}, inside=inside, bag=bag)
    root = files.read(source)
    given = read_sets(sets, bag)
    if root is None or given is None or len(bag) > before:
        return None
    if "card" in root.value and "meshlang" not in root.value:
        bag.add(a_card(root.value["card"]))
        return None
    if on is not None:
        machine = _machine(over(given, root), on, bag)
        if machine is None:
            return None
        root = replace(over(machine, root), span=root.span, key=None)
    root = replace(over(given, root), span=root.span)
    return Document(source=files.sources[0], root=root, sources=tuple(files.sources), on=on)


def a_card(node: Node) -> Diagnostic:
    """A model card where a spec is read."""
    return Diagnostic(
        code="not-a-spec",
        message="this is a model card, and a spec is read here",
        label=Label(span=node.key or node.span),
        notes=("`meshlang card check FILE#FLAVOR MODEL` holds a card against its model",),
    )


def machines(root: Node) -> dict[str, Node]:
    """Name -> table of each `[topology.on.NAME]`."""
    found = _inner(_inner(root, "topology"), "on")
    if found is None or not isinstance(found.value, dict):
        return {}
    return {name: table for name, table in found.value.items() if isinstance(table.value, dict)}


def _inner(table: Node | None, name: str) -> Node | None:
    if table is None or not isinstance(table.value, dict):
        return None
    return table.value.get(name)


def _machine(root: Node, on: str, bag: Bag) -> Node | None:
    """The table that `--on` names."""
    known = machines(root)
    if on in known:
        return known[on]
    flag = Source(name="--on", text=on)
    span = flag.span(0, len(on))
    meant = near(on, known)
    fix = () if meant is None else (Help(text=f"--on {meant}", edits=(Edit(span=span, text=meant),)),)
    have = ", ".join(f"`{name}`" for name in sorted(known)) or "none"
    bag.add(
        Diagnostic(
            code="unknown-machine",
            message=f"the spec describes no machine `{on}`",
            label=Label(span=span, text="chosen here"),
            labels=tuple(Label(span=place(table), text="described here") for table in known.values()),
            notes=(f"machines of `[topology.on]`: {have}",),
            help=fix,
        )
    )
    return None
