"""Who decided each dimension, and the lines that did, in their files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...fold import template
from ...language.spec import Spec
from ...plan.ir import Origin, Plan
from ...plan.resolved import origin_of
from ..pictures.markup import Markup, joined, tag
from ..pictures.tensors import Group
from ..tensor import decided_by

#: Between factors.
TIMES = " \u00d7 "
#: Lines of one file that are shown; the rest is said to be left out.
MOST_LINES = 400
#: Tensors that the table lists.
MOST_ROWS = 200


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A file whose lines decide something: its name as an origin says it, and its text."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """What a line of the spec says beside the dims of tensors: of values, of storage."""

    what: str
    name: str
    over: str
    origin: Origin


def lines_of(spec: Spec, plan: Plan) -> Iterator[Line]:
    """Rules on dims that no tensor has, which cut values alone; what strategies cut; what is also cut at rest."""
    held = {name for tensor in plan.tensors for dim in tensor.dims for name in dim.names}
    has = {name for edge in plan.edges for names in edge.names for name in names}
    for rule in spec.rules:
        if rule.name not in held and rule.name in has:
            where = "values" if rule.pattern is None else f"values within {rule.pattern.text}"
            over = TIMES.join(f"{axis.value} {plan.mesh.size(axis.value)}" for axis in rule.axes) or "whole"
            yield Line(what=where, name=rule.name, over=over, origin=origin_of(rule.level, rule.span))
    for table in spec.strategies:
        for name in type(table.plugin).places:
            over, by = f"{table.plugin.axis} {plan.mesh.size(table.plugin.axis)}", f"strategy.{table.name.value}"
            yield Line(what="values", name=name, over=over, origin=origin_of(by, table.name.span))
    if spec.store is not None and spec.store.over:
        over = TIMES.join(f"{axis.value} {plan.mesh.size(axis.value)}" for axis in spec.store.over)
        yield Line(
            what="parameters, at rest", name="dim 0", over=over, origin=origin_of("store", spec.store.over[0].span)
        )


class Anchors:
    """Names of lines in the page, made of numbers alone: no name of a file is part of an address."""

    def __init__(self, listings: Sequence[Listing]) -> None:
        self._files = {listing.name: i for i, listing in enumerate(listings)}
        self._lines = {listing.name: listing.text.count("\n") + 1 for listing in listings}

    def of(self, file: str, line: int) -> str | None:
        """The anchor of a line, or None where the page does not show it."""
        if file not in self._files or not 1 <= line <= min(self._lines[file], MOST_LINES):
            return None
        return f"f{self._files[file]}-{line}"


def decided_table(plan: Plan, groups: Sequence[Group], lines: Sequence[Line], anchors: Anchors) -> Markup:
    """A row for each dim of each kind of tensor, with the line that decided it; then values and storage."""
    rows = [_row(plan, group, i, anchors) for group in groups[:MOST_ROWS] for i in range(len(group.first.dims))]
    rows += [_line_row(each, anchors) for each in lines]
    head = tag("tr", *(tag("th", text, scope="col") for text in ("tensor", "dim", "size", "cut over", "decided by")))
    left = len(groups) - MOST_ROWS
    note = tag("p", f"{left} more kinds of tensor are not listed", class_="note") if left > 0 else ""
    return joined([tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="wide"), note])


def _row(plan: Plan, group: Group, index: int, anchors: Anchors) -> Markup:
    dim = group.first.dims[index]
    over = TIMES.join(f"{axis} {plan.mesh.size(axis)}" for axis in dim.axes) or "whole"
    stored = f", at rest {TIMES.join(group.first.stored)}" if index == 0 and group.first.stored else ""
    name = tag("th", tag("code", group.text), scope="rowgroup", rowspan=len(group.first.dims)) if index == 0 else ""
    return tag(
        "tr",
        name,
        tag("td", tag("code", dim.text)),
        tag("td", f"{dim.size:,}", class_="number"),
        tag("td", over + stored),
        tag("td", link(dim.origin, anchors)),
        data_line=anchors.of(dim.origin.file, dim.origin.line),
    )


def _line_row(line: Line, anchors: Anchors) -> Markup:
    cells = (tag("td", tag("code", line.name)), tag("td"), tag("td", line.over), tag("td", link(line.origin, anchors)))
    return tag(
        "tr", tag("th", line.what, scope="row"), *cells, data_line=anchors.of(line.origin.file, line.origin.line)
    )


def link(origin: Origin, anchors: Anchors) -> Markup:
    """An origin, leading to its line where the page shows it."""
    anchor, text = anchors.of(origin.file, origin.line), decided_by(origin)
    return tag("a", text, href=f"#{anchor}") if anchor else tag("span", text)


def decided(plan: Plan, lines: Sequence[Line] = ()) -> dict[tuple[str, int], list[str]]:
    """(file, line) -> the dims that it decides, as `TENSOR: DIM`, equal layers once."""
    found: dict[tuple[str, int], dict[str, None]] = {}
    for tensor in plan.tensors:
        for dim in tensor.dims:
            told = f"{template(tensor.fqn)}: {dim.text}"
            found.setdefault((dim.origin.file, dim.origin.line), {})[told] = None
    for line in lines:
        found.setdefault((line.origin.file, line.origin.line), {})[f"{line.what}: {line.name}"] = None
    return {key: list(names) for key, names in found.items()}


def listings_markup(plan: Plan, listings: Sequence[Listing], lines: Sequence[Line], anchors: Anchors) -> Markup:
    """Each file with numbered lines; a line that decides something says how much."""
    by_line = decided(plan, lines)
    return joined(_listing(listing, by_line, anchors, first=i == 0) for i, listing in enumerate(listings))


def _listing(
    listing: Listing, by_line: Mapping[tuple[str, int], list[str]], anchors: Anchors, *, first: bool
) -> Markup:
    lines = listing.text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    shown = lines[:MOST_LINES]
    rows = [
        _line(number, text, by_line.get((listing.name, number), []), listing, anchors)
        for number, text in enumerate(shown, 1)
    ]
    left = len(lines) - len(shown)
    more = tag("p", f"{left} more lines", class_="note") if left > 0 else ""
    count = sum(1 for file, _ in by_line if file == listing.name)
    head = tag(
        "summary", tag("code", listing.name), f" \u2014 {count} line{'s' * (count != 1)} decide{'s' * (count == 1)}"
    )
    return tag("details", head, tag("ol", *rows, class_="source"), more, open="" if first else None)


def _line(number: int, text: str, names: Sequence[str], listing: Listing, anchors: Anchors) -> Markup:
    count = (
        tag("span", f"{len(names)} dim{'s' * (len(names) > 1)}", class_="count", title=_told(names)) if names else ""
    )
    return tag(
        "li",
        tag("code", text[:400] or " "),
        count,
        id=anchors.of(listing.name, number),
        class_="decides" if names else None,
    )


def _told(names: Iterable[str]) -> str:
    shown = list(names)
    return "\n".join(shown[:20]) + (f"\n... {len(shown) - 20} more" if len(shown) > 20 else "")


def origins(plan: Plan) -> Iterator[str]:
    """Files that some line of which decides something."""
    yield from dict.fromkeys(dim.origin.file for tensor in plan.tensors for dim in tensor.dims)
