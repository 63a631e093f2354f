"""Reads a root file and everything that it includes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from ..diagnostics import Bag, Diagnostic, Edit, Help, Label
from ..near import near
from ..source import Source, Span
from .merge import beside, over
from .toml import Node, scan

#: The language version that this reader speaks.
VERSION = 1

PRESETS = Path(__file__).parent / "presets"
DEEPEST = 32
#: Files of a folder among which a near name is looked for.
MOST_NEIGHBOURS = 100
#: Files of one spec.
MOST_FILES = 64


def presets() -> tuple[str, ...]:
    """Names of meshlang's own presets, sorted."""
    return tuple(sorted(path.stem for path in PRESETS.glob("*.toml")))


@dataclass(frozen=True, kw_only=True)
class _Step:
    """A file on the way from the root, and the `include` element that led to it."""

    identity: str
    name: str
    span: Span | None


@dataclass(kw_only=True)
class Files:
    """The files of one spec, by depth."""

    overlay: Mapping[str, str]
    bag: Bag
    inside: str | None = None
    sources: list[Source] = field(default_factory=list)
    layers: dict[int, list[Node]] = field(default_factory=dict)
    _scanned: dict[str, Node | None] = field(default_factory=dict)
    _seen: set[tuple[str, int]] = field(default_factory=set)

    def read(self, source: Source) -> Node | None:
        """The root file over all that it includes, or None when a file does not scan."""
        if source.name in self.overlay:
            source = Source(name=source.name, text=self.overlay[source.name])
        self._visit(source, (_Step(identity=_identity(source.name), name=source.name, span=None),))
        if not self.layers:
            return None
        root = self.layers[0][0]
        for depth in sorted(self.layers)[1:]:
            root = replace(over(root, self._layer(self.layers[depth])), span=root.span)
        return root

    def _layer(self, nodes: list[Node]) -> Node:
        """All files of one depth as one tree."""
        found = nodes[0]
        for node in nodes[1:]:
            found = beside(found, node, self.bag, where="in two files of one depth")
        return found

    def _visit(self, source: Source, way: tuple[_Step, ...]) -> None:
        """Put a file into its layer, then what it includes."""
        depth, identity = len(way) - 1, way[-1].identity
        if (identity, depth) in self._seen:
            return
        self._seen.add((identity, depth))
        if identity not in self._scanned:
            self.sources.append(source)
            self._scanned[identity] = scan(source, self.bag, preset=identity.startswith("preset:"))
        node = self._scanned[identity]
        if node is None:
            return
        dropped = {"include"} if depth == 0 else {"include", "meshlang"}
        if depth:
            self._version(node.value.get("meshlang"))
        kept = {name: each for name, each in node.value.items() if name not in dropped}
        self.layers.setdefault(depth, []).append(replace(node, value=kept))
        for element in self._includes(node.value.get("include")):
            self._follow(element, way)

    def _version(self, node: Node | None) -> None:
        """An included file need not say its version; one that does says ours."""
        if node is not None and (type(node.value) is not int or node.value != VERSION):
            message = f"an included file is written in another version of the language than {VERSION}"
            self._find("unknown-version", message, node.span)

    def _includes(self, node: Node | None) -> tuple[Node, ...]:
        """Elements of `include` that are strings; anything else is a finding."""
        if node is None:
            return ()
        elements = node.value if isinstance(node.value, tuple) else (node,)
        if not isinstance(node.value, tuple):
            quoted = isinstance(node.value, str)
            fix = (_help("write an array", node.span, f"[{node.span.text}]"),) if quoted else ()
            self._find("wrong-type", "`include` takes an array of strings", node.span, help=fix)
            return ()
        first: dict[str, Node] = {}
        for element in elements:
            if not isinstance(element.value, str):
                self._find("wrong-type", "`include` takes an array of strings", element.span)
                continue
            before = first.setdefault(os.path.normpath(element.value), element)
            if before is not element:
                label = Label(span=before.span, text="first here")
                self._find("include-conflict", f"`{element.value}` is included twice", element.span, labels=(label,))
        return tuple(first.values())

    def _follow(self, element: Node, way: tuple[_Step, ...]) -> None:
        """Visit the file that one element of `include` names."""
        name = element.value
        if not name.startswith("preset:"):
            name = str(Path(way[-1].name).parent / name)
        step = _Step(identity=_identity(name), name=name, span=element.span)
        if step.identity in [each.identity for each in way] or len(way) > DEEPEST:
            self._cycle(step, way)
            return
        if len(self._scanned) >= MOST_FILES and step.identity not in self._scanned:
            self._find("too-large", f"a spec of more than {MOST_FILES} files", element.span)
            return
        source = self._preset(element) if name.startswith("preset:") else self._file(element, name)
        if source is not None:
            self._visit(source, (*way, step))

    def _cycle(self, step: _Step, way: tuple[_Step, ...]) -> None:
        """Files that include each other without an end."""
        assert step.span is not None
        names = [each.identity for each in way]
        first = names.index(step.identity) if step.identity in names else 0
        around = (*way[first:], step)
        message = "files include each other in a circle: " + " -> ".join(each.name for each in around)
        if step.identity not in names:
            message = f"includes go deeper than {DEEPEST} files"
        labels = tuple(Label(span=each.span, text=f"includes {each.name}") for each in around[1:-1] if each.span)
        self._find("include-cycle", message, step.span, labels=labels)

    def _preset(self, element: Node) -> Source | None:
        """The text of `preset:NAME`."""
        name = element.value.removeprefix("preset:")
        if name in presets():
            return Source.decode(element.value, (PRESETS / f"{name}.toml").read_bytes())
        fix = _nearest(element, name, presets(), "preset:")
        note = "presets: " + ", ".join(presets())
        self._find("unknown-preset", f"there is no preset `{name}`", element.span, notes=(note,), help=fix)
        return None

    def _file(self, element: Node, name: str) -> Source | None:
        """The text of an included file."""
        if self.inside is not None and outside(name, self.inside):
            self.bag.add(lies_outside(element.value, element.span))
            return None
        if name in self.overlay:
            return Source(name=name, text=self.overlay[name])
        try:
            if Path(name).is_file():
                return Source.read(name)
            reason = f"{name} is a folder" if Path(name).is_dir() else f"there is no file {name}"
        except (OSError, ValueError) as error:
            reason = f"{name} cannot be read: {getattr(error, 'strerror', None) or error}"
        fix = _nearest(element, os.path.basename(name), _neighbours(name), _folder(element.value))
        self._find(
            "include-not-found", f"`{element.value}` cannot be included", element.span, notes=(reason,), help=fix
        )
        return None

    def _find(
        self,
        code: str,
        message: str,
        span: Span,
        *,
        labels: tuple[Label, ...] = (),
        notes: tuple[str, ...] = (),
        help: tuple[Help, ...] = (),
    ) -> None:
        label = Label(span=span)
        self.bag.add(Diagnostic(code=code, message=message, label=label, labels=labels, notes=notes, help=help))


def outside(path: str | Path, folder: str) -> bool:
    """True for a path that does not lie in a folder, links followed."""
    try:
        real, root = os.path.realpath(path), os.path.realpath(folder)
        return os.path.commonpath((real, root)) != root
    except (OSError, ValueError):
        return False  # no file: that is another finding


def lies_outside(written: str, span: Span) -> Diagnostic:
    """A file that a spec may not name."""
    notes = (
        "includes, cards and orders lie in the spec's own folder or below it",
        "`--allow-outside` on the command line reads it; the spec itself cannot allow it",
    )
    message = f"`{written}` lies outside the spec's folder"
    return Diagnostic(code="outside-folder", message=message, label=Label(span=span), notes=notes)


def _identity(name: str) -> str:
    """One text for each file, however it is named."""
    if name.startswith("preset:"):
        return name
    try:
        return os.path.realpath(name)
    except (OSError, ValueError):
        return name


def _folder(path: str) -> str:
    return path[: len(path) - len(os.path.basename(path))]


def _neighbours(name: str) -> list[str]:
    """Names of the TOML files where a missing one was looked for."""
    try:
        return sorted(path.name for path in islice(Path(name).parent.glob("*.toml"), MOST_NEIGHBOURS))
    except (OSError, ValueError):
        return []


def _nearest(element: Node, name: str, known: Iterable[str], before: str) -> tuple[Help, ...]:
    meant = near(name, known)
    if meant is None:
        return ()
    return (_help(f"`{before}{meant}` is near", element.span, f'"{before}{meant}"'),)


def _help(text: str, span: Span, fix: str) -> Help:
    return Help(text=text, edits=(Edit(span=span, text=fix),))
