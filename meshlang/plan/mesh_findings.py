"""Findings about axes, their sizes and where ranks sit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ..diagnostics import Diagnostic, Edit, Help, Label, counted
from ..language.spec import AxisEntry, Spec, Written
from ..mesh import KNOWN_AXES, Mesh
from ..near import near
from ..source import Span
from .words import listed, rename

if TYPE_CHECKING:
    from .resolved import Resolved

#: Sizes that one help offers.
MOST_SIZES = 8
#: Axes of a mesh whose order one help spells out.
MOST_AXES = 12


def unknown_axis(word: Written[str], names: Sequence[str]) -> Diagnostic:
    """A rule speaks of an axis that the mesh lacks."""
    have = f"the mesh has {listed(names)}" if names else "the mesh has no axis"
    return Diagnostic(
        code="unknown-axis",
        message=f"`{word.value}` is no axis of the mesh",
        label=Label(span=word.span, text=have),
        help=rename(word.span, near(word.value, names)),
    )


def two_strategies(first: Written[str], second: Written[str]) -> Diagnostic:
    """Two strategies run over one axis."""
    return Diagnostic(
        code="strategy-clash",
        message=f"two strategies run over `{second.value}`",
        label=Label(span=second.span, text="and this one"),
        labels=(Label(span=first.span, text="this one"),),
    )


def no_stages(span: Span, names: Sequence[str]) -> Diagnostic:
    """A pipeline, and no axis that it could run over."""
    return Diagnostic(
        code="unknown-axis",
        message="a pipeline runs over `pp`, which is no axis of the mesh",
        label=Label(span=span, text=f"the mesh has {listed(names)}"),
    )


def unordered_axis(entry: AxisEntry, spec: Spec) -> Diagnostic:
    """A custom axis that no `[topology] order` puts in its place."""
    return Diagnostic(
        code="unordered-axis",
        message=f"`{entry.name}` is none of the known axes, and no `[topology] order` says where it lies",
        label=Label(span=entry.key),
        notes=(f"known axes, outermost first: {', '.join(KNOWN_AXES)}",),
        help=_ordered(entry, spec) if len(spec.mesh) <= MOST_AXES else (),
    )


def _ordered(entry: AxisEntry, spec: Spec) -> tuple[Help, ...]:
    """Offer the known axis that was meant, or an order with this one outermost."""
    names = sorted((each.name for each in spec.mesh), key=_usual)
    order = f"order = [{_quoted(names)}]"
    end = len(spec.source.text)
    table = Edit(span=spec.source.span(end, end), text=f"\n[topology]\n{order}\n")
    return (
        *rename(entry.key, meant_axis(entry, spec)),
        Help(text=f"`[topology] {order}` puts it outermost", edits=(table,)),
    )


def meant_axis(entry: AxisEntry, spec: Spec) -> str | None:
    """The known axis that an unknown one was most likely meant to be: first of those that the spec speaks of."""
    names = {each.name for each in spec.mesh}
    words = [axis for rule in spec.rules for axis in rule.axes] + list(spec.store.over if spec.store else ())
    spoken = {word.value for word in words} - names
    return near(entry.name, spoken & set(KNOWN_AXES)) or near(entry.name, set(KNOWN_AXES) - names)


def _usual(name: str) -> int:
    """Place in the default order; axes that have none come first."""
    return KNOWN_AXES.index(name) if name in KNOWN_AXES else -1


def order_misses(entry: AxisEntry, order: Sequence[Written[str]]) -> Diagnostic:
    """`[topology] order` leaves an axis of the mesh out."""
    last = order[-1].span
    more = Edit(span=last.source.span(last.end, last.end), text=f', "{entry.name}"')
    return Diagnostic(
        code="unordered-axis",
        message=f"`[topology] order` does not say where `{entry.name}` lies",
        label=Label(span=entry.key),
        labels=(Label(span=order[0].key, text="the order is set here"),),
        help=(Help(text=f"`{entry.name}` may come last: it is then the innermost", edits=(more,)),),
    )


def ranks_differ(spec: Spec, known: int, ranks: int) -> Diagnostic:
    """The mesh is of fixed size, and not that of the run."""
    product = " x ".join(str(entry.size) for entry in spec.mesh)
    launch = spec.launch
    asked = launch.ranks if launch is not None and launch.ranks is not None and launch.ranks.value == ranks else None
    return Diagnostic(
        code="ranks-differ",
        message=f"the mesh has {product} = {known} ranks, and {ranks} are asked for"
        if len(spec.mesh) > 1
        else f"the mesh has {known} ranks, and {ranks} are asked for",
        label=Label(span=spec.mesh_span),
        labels=(Label(span=asked.span, text="asked for here"),) if asked is not None else (),
        notes=('an axis that is "rest" takes what the others leave',),
        help=(
            Help(
                text="{} fits",
                edits=tuple(Edit(span=entry.span, text='"rest"') for entry in spec.mesh),
                values=tuple(f'`{entry.name} = "rest"`' for entry in spec.mesh),
            ),
        ),
    )


def ranks_needed(rest: AxisEntry) -> Diagnostic:
    """An axis is "rest" and nobody says of how many."""
    return Diagnostic(
        code="ranks-needed",
        message=f'`{rest.name}` is "rest", and the number of ranks is not known',
        label=Label(span=rest.span),
        notes=("say --ranks N, or `ranks` in [launch]",),
    )


def rest_uneven(rest: AxisEntry, known: int, ranks: int, spec: Spec) -> Diagnostic:
    """The fixed axes do not divide the ranks."""
    others = [entry for entry in spec.mesh if entry.size is not None]
    product = " x ".join(f"`{entry.name}` = {entry.size}" for entry in others)
    return Diagnostic(
        code="rest-uneven",
        message=f"{counted(ranks, 'rank', does=True)} not divide over {product}",
        label=Label(span=rest.span, text=f"{ranks} / {known} is no whole number"),
        labels=tuple(Label(span=entry.span, text="axis size set here") for entry in others),
        notes=(f"`{rest.name}` needs a multiple of {known} ranks",),
        help=tuple(_fitting(entry, ranks, known) for entry in others if entry.size != 1),
    )


def _fitting(entry: AxisEntry, ranks: int, known: int) -> Help:
    """Sizes of an axis with which the ranks divide."""
    assert entry.size is not None
    return sizes_offered(entry.name, entry.span, entry.size, ranks, known // entry.size)


def sizes_offered(
    key: str, span: Span, size: int, count: int, others: int, *, likely: Callable[[int], bool] = lambda _: True
) -> Help:
    """Sizes in place of one that does not fit: with each, and `others` beside it, a count divides.

    They are few: those that are likely to fit all else come first, and then the nearest.
    """
    fits = divisors(count // others) if count % others == 0 else []
    nearest = sorted(fits, key=lambda n: (not likely(n), max(n, size) / min(n, size), n))[:MOST_SIZES]
    values = tuple(str(n) for n in sorted(nearest))
    return Help(
        text=f"{key} may be {{}} here", edits=tuple(Edit(span=span, text=text) for text in values), values=values
    )


def divisors(number: int, most: int = 4096) -> list[int]:
    """Divisors up to `most`, and the number itself, in order."""
    return [n for n in range(1, min(number, most) + 1) if number % n == 0] + [number] * (number > most)


def unused_axis(entry: AxisEntry, resolved: Resolved) -> Diagnostic:
    """An axis that nothing uses: its ranks would all do the same."""
    size = resolved.mesh.size(entry.name)
    return Diagnostic(
        code="unused-axis",
        message=f"`{entry.name}` = {size} cuts nothing, and no strategy runs over it",
        label=Label(span=entry.key, text=f"{size} ranks would do the same work"),
        notes=_left_whole(entry, resolved),
        help=(
            *_batch_over(entry, resolved),
            Help(text=f"{entry.name} may be 1 here", edits=(Edit(span=entry.span, text="1"),)),
        ),
    )


def _left_whole(entry: AxisEntry, resolved: Resolved) -> tuple[str, ...]:
    """The dimensions that the spec's own rules leave whole: among them is what the axis was meant for."""
    rules = [rule for rule in resolved.spec.rules if rule.level == "place" and not rule.preset]
    whole = [rule.name for rule in rules if not rule.axes]
    return (f"[place] leaves {listed(whole)} whole, and gives nothing to `{entry.name}`",) if whole else ()


def store_without_data(entry: AxisEntry, resolved: Resolved) -> Diagnostic:
    """An axis stores parts of the weights, but every rank along it computes the same."""
    assert resolved.spec.store is not None
    size = resolved.mesh.size(entry.name)
    word = next(word for word in resolved.spec.store.over if word.value == entry.name)
    return Diagnostic(
        code="store-without-data",
        message=f"`{entry.name}` = {size} keeps parts of the weights, but cuts no activation",
        label=Label(span=word.span, text=f"{size} ranks would compute the same batch"),
        labels=(Label(span=entry.key, text="axis size set here"),),
        help=_batch_over(entry, resolved),
    )


def _batch_over(entry: AxisEntry, resolved: Resolved) -> tuple[Help, ...]:
    """Give each rank of an axis its own sequences, where no rule places the batch."""
    rules = [rule for rule in resolved.spec.rules if rule.level == "place"]
    written = [rule for rule in rules if not rule.preset]
    if not written or any(rule.name == "batch" for rule in rules):
        return ()
    key, line = written[0].key, f'batch = "{entry.name}"'
    edit = Edit(span=key.source.span(key.start, key.start), text=f"{line}\n")
    return (Help(text=f"`{line}` in [place] gives each of these ranks its own sequences", edits=(edit,)),)


def node_size_unknown(word: Written[str]) -> Diagnostic:
    """`inside_node` without the size of a node."""
    return Diagnostic(
        code="missing-key",
        message="`inside_node` promises nothing without `ranks_per_node`",
        label=Label(span=word.key, text="ranks of a node are not known"),
    )


def part_of_node(per_node: Written[int], spec: Spec, mesh: Mesh) -> Diagnostic:
    """The last node would have ranks for a part of it only."""
    return Diagnostic(
        code="leaves-node",
        message=f"{counted(mesh.ranks, 'rank', does=True)} not fill nodes of {per_node.value}",
        label=Label(span=per_node.span, text=f"the last node would have {mesh.ranks % per_node.value}"),
        labels=(Label(span=spec.mesh_span, text=" x ".join(f"{axis.name} {axis.size}" for axis in mesh.axes)),),
    )


def leaves_node(word: Written[str], near_ranks: int, spec: Spec, mesh: Mesh) -> Diagnostic:
    """An axis that was promised to stay inside a node does not."""
    per_node, size = spec.topology.ranks_per_node, mesh.size(word.value)
    assert per_node is not None
    inner = mesh.names[mesh.names.index(word.value) :]
    product = " x ".join(f"{name} {mesh.size(name)}" for name in inner)
    return Diagnostic(
        code="leaves-node",
        message=f"`{word.value}` = {size} does not stay inside a node of {per_node.value} ranks",
        label=Label(span=word.span, text="promised here"),
        labels=(Label(span=per_node.span, text="node size set here"),),
        notes=(
            f"a group of it lies among {near_ranks} neighbours ({product}), and nodes hold no whole number of these",
        ),
    )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
