"""Findings about cuts: of what a module computes over, of a dimension's count, of values on their way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..diagnostics import Diagnostic, Edit, Help, Label, counted
from ..fold import template, told
from ..language.spec import AxisEntry, PlaceRule, Written
from .findings import tensors_first
from .mesh_findings import sizes_offered
from .resolved import Resolved, known_sizes
from .words import listed, may_say, own_last, said

if TYPE_CHECKING:
    from .ir import Edge

#: Module boundaries that one finding lists.
MOST_PORTS = 4
#: What the dimensions of the run count.
_COUNTED = {"batch": "sequences", "seq": "tokens"}


@dataclass(frozen=True, kw_only=True)
class Clash:
    """Two rules that cut with one axis, and where they do so together."""

    rules: tuple[PlaceRule, PlaceRule]
    fqns: list[str]

    @property
    def key(self) -> frozenset[int]:
        """The same for the same two rules."""
        return frozenset(id(rule) for rule in self.rules)


def clashing(axis: str, clashes: Sequence[Clash], resolved: Resolved) -> Iterator[Diagnostic]:
    """All clashes over one axis: a single finding when one rule takes part in each of them."""
    common = [rule for rule in clashes[0].rules if all(rule in clash.rules for clash in clashes)]
    if len(clashes) == 1 or not common:
        yield from (axis_cuts_twice(axis, clash, resolved) for clash in clashes)
        return
    others = [rule for clash in clashes for rule in clash.rules if rule is not common[0]]
    fqns = list(dict.fromkeys(fqn for clash in clashes for fqn in clash.fqns))
    yield axis_cuts_many(axis, common[0], others, fqns, resolved)


def axis_cuts_twice(axis: str, clash: Clash, resolved: Resolved) -> Diagnostic:
    """One axis cuts two dimensions of a tensor, or of what one module computes over."""
    one, other = sorted(clash.rules, key=own_last)
    return Diagnostic(
        code="axis-cuts-twice",
        message=f"`{axis}` cuts both `{one.name}` and `{other.name}`",
        label=Label(span=other.span, text=f"cuts `{other.name}`"),
        labels=(Label(span=one.span, text=f"cuts `{one.name}`"),),
        notes=_twice_notes(clash.fqns, resolved),
        help=(*_gathered(axis, (one.name, other.name), clash.fqns, resolved), _whole(other)),
    )


def axis_cuts_many(
    axis: str, main: PlaceRule, others: Sequence[PlaceRule], fqns: Sequence[str], resolved: Resolved
) -> Diagnostic:
    """One axis cuts a dimension, and beside it, module by module, others."""
    rules = sorted(others, key=own_last)
    names = list(dict.fromkeys(rule.name for rule in rules))
    return Diagnostic(
        code="axis-cuts-twice",
        message=f"`{axis}` cuts `{main.name}`, and beside it {listed(names)}",
        label=Label(span=main.span, text=f"cuts `{main.name}`"),
        labels=tuple(Label(span=rule.span, text=f"cuts `{rule.name}`") for rule in rules),
        notes=_twice_notes(fqns, resolved),
        help=(*_gathered(axis, (main.name,), fqns, resolved), _whole(main)),
    )


def _twice_notes(fqns: Sequence[str], resolved: Resolved) -> tuple[str, ...]:
    return (
        f"in {told(fqns, resolved.model.modules)}",
        "one axis cuts one dimension of what a module computes over",
    )


def _gathered(axis: str, names: Iterable[str], fqns: Sequence[str], resolved: Resolved) -> tuple[Help, ...]:
    """Offer to gather the batch or the sequence inside the modules, or in those around them."""
    modules = [fqn if fqn in resolved.model.by_module else fqn.rpartition(".")[0] for fqn in fqns]
    around = list(dict.fromkeys(template(_around(module, resolved)) for module in modules))
    glob = around[0] if len(around) == 1 else "{" + ",".join(around) + "}"
    return tuple(
        _gather(axis, name, glob, resolved.axes(modules[0], name), resolved)
        for name in names
        if name in ("seq", "batch")
    )


def _around(module: str, resolved: Resolved) -> str:
    """The module with a boundary around this one; itself, when that would be a whole layer or the model."""
    scope = resolved.model.scopes.get(module, "")
    return module if not scope or template(scope).endswith("*") else scope


def _gather(axis: str, name: str, glob: str, axes: Iterable[str], resolved: Resolved) -> Help:
    """Offer a [within] at the end of the spec under which the modules see the dimension uncut by the axis."""
    left = [f'"{each}"' for each in axes if each != axis]
    value = '"whole"' if not left else left[0] if len(left) == 1 else f"[{', '.join(left)}]"
    source = resolved.spec.source
    end = len(source.text)
    edit = Edit(span=source.span(end, end), text=f'\n[within."{glob}"]\n{name} = {value}\n')
    return Help(text=f'gather it inside: `[within."{glob}"] {name} = {value}`', edits=(edit,))


def uneven_shard(name: str, count: int, rule: PlaceRule, fqns: Sequence[str], resolved: Resolved) -> Diagnostic:
    """A dimension does not divide over the axes that cut it."""
    axes = [axis.value for axis in rule.axes]
    entries = [entry for axis in axes for entry in resolved.spec.mesh if entry.name == axis]
    steps = resolved.sizes.accumulation if name == "batch" else 1
    parts = resolved.mesh.product(axes) * steps
    over = " x ".join(f"`{axis}` = {resolved.mesh.size(axis)}" for axis in axes)
    over += f" x {steps} accumulation steps" if steps > 1 else ""
    labels = [Label(span=rule.span, text=f"{count} {_COUNTED.get(name, name)} over {parts} parts")]
    labels += [Label(span=entry.span, text=_size_said(entry, resolved)) for entry in entries]
    labels += [Label(span=word.span, text=f"{name} set here") for word in _written(name, resolved)]
    main = next((label for label in labels if not (rule.preset and label.span == rule.span)), labels[0])
    return Diagnostic(
        code="uneven-shard",
        message=f"`{name}` = {count} does not divide over {over}",
        label=main,
        labels=tuple(label for label in labels if label is not main),
        notes=_carriers(name, fqns, resolved),
        help=tuple(_sizes(entry, count, parts, resolved) for entry in entries if resolved.mesh.size(entry.name) > 1),
    )


def _written(name: str, resolved: Resolved) -> list[Written[int]]:
    """Where `[sizes]` says how large a dimension of the run is."""
    word = getattr(resolved.spec.sizes, name, None) if name in _COUNTED else None
    return [word] if word is not None else []


def _size_said(entry: AxisEntry, resolved: Resolved) -> str:
    if entry.size is not None:
        return "axis size set here"
    return f"{resolved.mesh.size(entry.name)} of {counted(resolved.mesh.ranks, 'rank')}"


def uneven_steps(resolved: Resolved, batch: int) -> Diagnostic:
    """The batch does not divide over the steps of accumulation."""
    assert resolved.spec.sizes is not None
    steps, written = resolved.spec.sizes.accumulation, resolved.spec.sizes.batch
    assert steps is not None
    return Diagnostic(
        code="uneven-shard",
        message=f"`batch` = {batch} does not divide over {steps.value} accumulation steps",
        label=Label(span=steps.span, text=f"{counted(batch, 'sequence')} over {steps.value} steps"),
        labels=(Label(span=written.span, text="batch set here"),) if written is not None else (),
        help=(sizes_offered("accumulation", steps.span, steps.value, batch, 1),),
    )


def _carriers(name: str, fqns: Sequence[str], resolved: Resolved) -> tuple[str, ...]:
    """The tensors among `fqns`, with the shape that they share; of a dimension of the run, nothing."""
    if name in _COUNTED:
        return ()
    tensors = [tensor for tensor in resolved.model.tensors if tensor.fqn in set(fqns)]
    shapes = {tuple(resolved.model.size(factors) for factors in tensor.dims) for tensor in tensors}
    shape = f", shape {next(iter(shapes))}" if len(shapes) == 1 else ""
    return (f"on {told(tensors_first(fqns, resolved), resolved.model.modules)}{shape}",)


def _sizes(entry: AxisEntry, count: int, parts: int, resolved: Resolved) -> Help:
    """Sizes of an axis over which the count divides, and what else the axis cuts."""
    size = resolved.mesh.size(entry.name)
    sizes = known_sizes(resolved)
    cut = [(sizes[rule.name], rule) for rule in resolved.spec.rules if rule.name in sizes]
    also = [(each, _beside(rule, entry, resolved)) for each, rule in cut if entry.name in _axes(rule)]

    def likely(n: int) -> bool:
        return all(each % (n * others) == 0 for each, others in also)

    return sizes_offered(entry.name, entry.span, size, count, parts // size, likely=likely)


def _axes(rule: PlaceRule) -> list[str]:
    return [axis.value for axis in rule.axes]


def _beside(rule: PlaceRule, entry: AxisEntry, resolved: Resolved) -> int:
    """Parts that a rule makes beside those of one axis."""
    steps = resolved.sizes.accumulation if rule.name == "batch" else 1
    return steps * resolved.mesh.product([axis for axis in _axes(rule) if axis != entry.name])


# Values on their way


def needs_whole(name: str, axis: str, rule: PlaceRule, modules: Sequence[str], resolved: Resolved) -> Diagnostic:
    """Modules compute over the whole of a dimension that is cut inside them."""
    globs = list(dict.fromkeys(template(module) for module in modules))
    glob = globs[0] if len(globs) == 1 else "{" + ",".join(globs) + "}"
    notes = [f"in {told(modules, resolved.model.modules)}"] if len(modules) > 1 else []
    if name == "seq":
        notes.append("attention looks at every key: a strategy for context parallelism must run over the axis")
        notes.append(f'such as `[strategy.ring_attention]` with `axis = "{axis}"`; `meshlang strategies` lists them')
    return Diagnostic(
        code="needs-whole",
        message=f"{listed(globs)} {'computes' if len(globs) == 1 else 'compute'} over the whole of `{name}`, "
        f"which `{axis}` cuts",
        label=Label(span=rule.span, text=said(rule)),
        notes=tuple(notes),
        help=(_whole(rule), _gather(axis, name, glob, resolved.axes(modules[0], name), resolved)),
    )


@dataclass(frozen=True, kw_only=True)
class MadeOfPart:
    """An input that the model makes from the length of `name`, which an axis cuts there."""

    module: str
    input: str
    name: str
    axis: str
    rule: PlaceRule


def made_of_part(part: MadeOfPart, resolved: Resolved, code: str = "needs-whole") -> Diagnostic:
    """The model makes an input from the part of the sequence that its rank sees."""
    scope = template(resolved.model.scopes.get(part.module, "")) or "the model"
    return Diagnostic(
        code=code,
        message=f"{_quoted(scope)} makes the `{part.input}` of `{template(part.module)}` from the length of "
        f"`{part.name}`, which `{part.axis}` cuts",
        label=Label(span=part.rule.span, text=said(part.rule)),
        notes=("each rank would make it for its own part alone, from the first on",),
        help=(_whole(part.rule),),
    )


def _quoted(scope: str) -> str:
    return scope if scope == "the model" else f"`{scope}`"


def _whole(rule: PlaceRule) -> Help:
    return Help(text=f'`{rule.name}` may be "whole" here', edits=(Edit(span=rule.span, text='"whole"'),))


def store_cuts(axis: Written[str], fqns: Sequence[str], resolved: Resolved) -> Diagnostic:
    """An axis is to store parts of a tensor that it already cuts."""
    assert resolved.spec.store is not None
    words = resolved.spec.store.over
    left = ", ".join(f'"{word.value}"' for word in words if word.value != axis.value)
    whole = axis.span.source.span(words[0].span.start, words[-1].span.end)
    return Diagnostic(
        code="store-cuts",
        message=f"`{axis.value}` already cuts the weights while computing, so it cannot store them in parts",
        label=Label(span=axis.span),
        notes=(f"on {told(fqns, resolved.model.modules)}",),
        help=(Help(text=f"`over` may be [{left}]", edits=(Edit(span=whole, text=left),)),) if left else (),
    )


def moves_twice(edges: Sequence[Edge], axes: Sequence[str], rule: PlaceRule | None, resolved: Resolved) -> Diagnostic:
    """Values would have to be redistributed over two axes at one boundary."""
    ports = list({(template(edge.module), edge.port): edge for edge in edges}.values())
    kinds = [", ".join(f"{axis} {edge.src.kind(axis)} -> {edge.dst.kind(axis)}" for axis in axes) for edge in ports]
    return Diagnostic(
        code="moves-twice",
        message=f"values would be redistributed over {listed(axes)} at once",
        label=Label(span=rule.span if rule is not None else resolved.spec.mesh_span, text=said(rule) if rule else ""),
        notes=(
            *(f"{port(edge)}: {kind}" for edge, kind in zip(ports[:MOST_PORTS], kinds, strict=False)),
            "one boundary redistributes over one axis; a module between the two may take one of them",
        ),
    )


def unfinished_sum(edges: Sequence[Edge], axis: str, resolved: Resolved) -> Diagnostic:
    """Values leave modules as sums that nobody finishes; rules alone never do that, a strategy may."""
    tables = [table for table in resolved.spec.strategies if getattr(table.plugin, "axis", axis) == axis]
    ports = list({(template(edge.module), edge.port): edge for edge in edges}.values())
    return Diagnostic(
        code="unfinished-sum",
        message=f"values go on as unfinished sums over `{axis}`",
        label=Label(
            span=tables[0].name.span if tables else resolved.spec.mesh_span,
            text="left so by this strategy" if len(tables) == 1 else "",
        ),
        notes=tuple(port(edge) for edge in ports[:MOST_PORTS]),
    )


def out_of_order(edges: Sequence[Edge], dim: int, resolved: Resolved) -> Diagnostic:
    """A cut would have to change under another cut that stays; all edges have the same two cuts of the same name."""
    edge = edges[0]
    name = edge.names[dim][0]
    cuts = (edge.src.dims[dim], edge.dst.dims[dim])
    rules = [r for r in resolved.spec.rules if r.name == name and tuple(axis.value for axis in r.axes) in cuts]
    main, *others = sorted(rules, key=own_last, reverse=True) or [None]
    ports = list({(template(each.module), each.port): each for each in edges}.values())
    long, short = sorted(cuts, key=len, reverse=True)
    return Diagnostic(
        code="out-of-order",
        message=f"`{name}` cannot go between {_cut(long)} and {_cut(short)}: only the innermost axis comes or goes",
        label=Label(span=main.span if main else resolved.spec.mesh_span, text=said(main) if main else ""),
        labels=tuple(Label(span=rule.span, text=said(rule)) for rule in others if rule is not None),
        notes=tuple(port(each) for each in ports[:MOST_PORTS]),
        help=_inner_last(rules, short, resolved),
    )


def _inner_last(rules: Sequence[PlaceRule], kept: Sequence[str], resolved: Resolved) -> tuple[Help, ...]:
    """Offer the order in which the axes that stay are the outer ones."""
    found = []
    for rule in rules:
        axes = [axis.value for axis in rule.axes]
        if len(axes) > 1 and set(kept) <= set(axes):
            ordered = [*kept, *(axis for axis in axes if axis not in kept)]
            value = "[" + ", ".join(f'"{axis}"' for axis in ordered) + "]"
            found.append(may_say(rule, value, resolved.spec.source))
    return tuple(found)


def _cut(axes: Sequence[str]) -> str:
    return " x ".join(f"`{axis}`" for axis in axes) or "no axis"


def port(edge: Edge) -> str:
    """A port in words: `output` of `layers.*.attention.wo`."""
    return f"`{edge.port}` of `{template(edge.module) or 'the model'}`"


def rule_at(edge: Edge, resolved: Resolved) -> PlaceRule | None:
    """The rule that gives the inner side of an edge its layout, where the two sides differ."""
    for dim, factors in enumerate(edge.names):
        if edge.src.dims[dim] != edge.dst.dims[dim]:
            rule = resolved.rules.decide(edge.module, factors[0]).rule
            if rule is not None:
                return rule
    return None


def flow_missing(edge: Edge, scope: str, axis: str, resolved: Resolved) -> Diagnostic:
    """A card does not say where a result goes on, and it may not be where it seems."""
    boundary = resolved.model.by_module[edge.module]
    module, around = template(edge.module), template(scope)
    return Diagnostic(
        code="card-flow",
        message=f"nothing says where the output of `{module}` goes on inside `{around}`",
        label=Label(span=boundary.span),
        notes=(
            f"its gradient would be taken for a sum over `{axis}`, as that of the input of `{around}` is",
            f'if it leaves with it: "{module} output" = "{around} output" in [flow]',
        ),
    )
