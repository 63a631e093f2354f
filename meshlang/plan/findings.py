"""Every finding of the plan stages: what is wrong, where, with the numbers, and fixes to try."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..card.model import Model
from ..diagnostics import Diagnostic, Edit, Help, Label
from ..language.pattern import Pattern
from ..language.spec import AxisEntry, PlaceRule, Spec, Written
from ..near import near
from ..source import Span
from .fold import told

if TYPE_CHECKING:
    from .ir import Edge
    from .resolve import Resolved

# Mesh


def unknown_axis(word: Written[str], names: Sequence[str]) -> Diagnostic:
    """A rule speaks of an axis that the mesh lacks."""
    guess = near(word.value, names)
    have = f"the mesh has {_list(names)}" if names else "the mesh has no axis"
    return Diagnostic(
        code="unknown-axis",
        message=f"`{word.value}` is no axis of the mesh",
        label=Label(span=word.span, text=have),
        help=_rename(word.span, guess),
    )


def unordered_axis(entry: AxisEntry, known: Sequence[str]) -> Diagnostic:
    """A custom axis that no `[topology] order` puts in its place."""
    return Diagnostic(
        code="unordered-axis",
        message=f"`{entry.name}` is none of the known axes, and no `[topology] order` says where it lies",
        label=Label(span=entry.key),
        notes=(f"known axes, outermost first: {', '.join(known)}",),
        help=_rename(entry.key, near(entry.name, known)),
    )


def order_misses(entry: AxisEntry, order: Sequence[Written[str]]) -> Diagnostic:
    """`[topology] order` leaves an axis of the mesh out."""
    return Diagnostic(
        code="unordered-axis",
        message=f"`[topology] order` does not say where `{entry.name}` lies",
        label=Label(span=entry.key),
        labels=(Label(span=order[0].key, text="the order is set here"),) if order else (),
    )


def ranks_differ(spec: Spec, known: int, ranks: int) -> Diagnostic:
    """The mesh is of fixed size, and not that of the run."""
    product = " x ".join(str(entry.size) for entry in spec.mesh)
    launch = spec.launch
    asked = launch.ranks if launch is not None and launch.ranks is not None and launch.ranks.value == ranks else None
    return Diagnostic(
        code="ranks-differ",
        message=f"the mesh has {product} = {known} ranks, and {ranks} are asked for",
        label=Label(span=spec.mesh_span),
        labels=(Label(span=asked.span, text="asked for here"),) if asked is not None else (),
        notes=('one axis may be "rest", and takes what the others leave',),
    )


def ranks_needed(rest: AxisEntry) -> Diagnostic:
    """An axis is "rest" and nobody says of how many."""
    return Diagnostic(
        code="ranks-needed",
        message=f'`{rest.name}` is "rest", and the number of ranks is not known',
        label=Label(span=rest.span),
        notes=("say --ranks N, or `ranks` in [launch]",),
    )


def rest_uneven(rest: AxisEntry, known: int, ranks: int) -> Diagnostic:
    """The fixed axes do not divide the ranks."""
    return Diagnostic(
        code="rest-uneven",
        message=f"{ranks} ranks do not divide by the other axes' {known}",
        label=Label(span=rest.span, text=f"{ranks} / {known} is no whole number"),
    )


def unused_axis(entry: AxisEntry, resolved: Resolved) -> Diagnostic:
    """An axis that nothing uses: its ranks would all do the same."""
    size = resolved.mesh.size(entry.name)
    return Diagnostic(
        code="unused-axis",
        message=f"`{entry.name}` = {size} cuts nothing, and no strategy runs over it",
        label=Label(span=entry.key, text=f"{size} ranks would do the same work"),
        help=(Help(text=f"{entry.name} may be 1 here", edits=(Edit(span=entry.span, text="1"),)),),
    )


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
        notes=(f'`batch = "{entry.name}"` in [place] gives each rank its own sequences',),
    )


# Names


def unknown_dimension(rule: PlaceRule, model: Model) -> Diagnostic:
    """A rule places a dimension that the model lacks, so it decides nothing."""
    guess = near(rule.name, model.names)
    return Diagnostic(
        code="unknown-dimension",
        message=f"`{model.name}` has no dimension `{rule.name}`",
        label=Label(span=rule.key, text="decides nothing"),
        notes=(f"it has {_list(sorted(model.names))}",),
        help=_rename(rule.key, guess),
    )


def no_match(pattern: Pattern, span: Span, known: Sequence[str]) -> Diagnostic:
    """A pattern names no module and no tensor."""
    return Diagnostic(
        code="no-match",
        message=f"`{pattern.text}` names no module of the model",
        label=Label(span=span),
        help=_rename_glob(span, pattern, known),
    )


def _rename_glob(span: Span, pattern: Pattern, known: Sequence[str]) -> tuple[Help, ...]:
    from .fold import template

    templates = {template(fqn) for fqn in known}
    guess = near(pattern.text, templates)
    if guess is None:
        tails = {t.rpartition(".")[2]: t for t in templates}
        tail = near(pattern.text.rpartition(".")[2], tails)
        guess = tails[tail] if tail is not None else None
    return _rename(span, guess)


def undecided(name: str, fqns: Sequence[str], resolved: Resolved) -> Diagnostic:
    """A dimension that no rule and no card decides."""
    place = next((rule for rule in resolved.spec.rules if rule.level == "place" and not rule.preset), None)
    where = place.key if place is not None else resolved.spec.mesh_span
    edits = ()
    values = [*_tensor_axes(resolved), "whole"]
    if place is not None:
        start = Span(source=place.key.source, start=place.key.start, end=place.key.start)
        edits = tuple(Edit(span=start, text=f'{name} = "{value}"\n') for value in values)
    shown = tuple(f'`{name} = "{value}"`' for value in values)
    return Diagnostic(
        code="undecided-dimension",
        message=f"no rule says where `{name}` goes",
        label=Label(span=where, text=f"[place] does not name `{name}`"),
        notes=(f"on {told(fqns, resolved.model.modules)}", '"whole" says unsharded on purpose'),
        help=(Help(text="[place] may say {}", edits=edits, values=shown),) if edits else (),
    )


def _tensor_axes(resolved: Resolved) -> list[str]:
    """Axes that cut some weight already: likely homes for one that was forgotten."""
    names = {name for tensor in resolved.model.tensors for name in tensor.names}
    axes = [a.value for rule in resolved.spec.rules if rule.name in names for a in rule.axes]
    return list(dict.fromkeys(axes))


def conflict(first: PlaceRule, second: PlaceRule, fqns: Sequence[str]) -> Diagnostic:
    """Two rules of one level disagree about the same dimension."""
    return Diagnostic(
        code="conflict",
        message=f"two rules of [{second.level}] disagree about `{second.name}`",
        label=Label(span=second.span, text=f"{_said(second)} here"),
        labels=(Label(span=first.span, text=f"{_said(first)} here"),),
        notes=(f"both cover {told(fqns, fqns)}", "neither order nor length of a pattern decides"),
    )


def decides_nothing(rule: PlaceRule, resolved: Resolved) -> Diagnostic:
    """A rule that no tensor and no boundary follows."""
    inside = f" inside `{rule.pattern.text}`" if rule.pattern is not None else ""
    stronger = next(
        (r for r in resolved.spec.rules if r.name == rule.name and r is not rule and id(r) in resolved.rules.used), None
    )
    spoken = any(
        rule.name in names and (rule.pattern is None or rule.pattern.covers(fqn)) for fqn, names in _names_of(resolved)
    )
    if spoken and stronger is not None:
        message = f"this rule decides nothing: stronger ones decide every `{rule.name}`{inside}"
        labels = (Label(span=stronger.span, text="decided here"),)
    else:
        message = f"this rule decides nothing: there is no `{rule.name}`{inside}"
        labels = ()
    return Diagnostic(code="decides-nothing", message=message, label=Label(span=rule.key), labels=labels)


def _names_of(resolved: Resolved) -> Iterable[tuple[str, frozenset[str]]]:
    for tensor in resolved.model.tensors:
        yield tensor.fqn, tensor.names
    for boundary in resolved.model.boundaries:
        yield boundary.module, frozenset(n for _, dims in boundary.ports() for f in dims for n in f)


def inner_factor(rule: PlaceRule, fqn: str, resolved: Resolved) -> Diagnostic:
    """A rule cuts a factor that is not the outermost of its tensor dim."""
    dim = next(
        (factors for t in resolved.model.tensors for factors in t.dims if rule.name in factors[1:]), (rule.name,)
    )
    return Diagnostic(
        code="inner-factor",
        message=f"`{rule.name}` cannot be cut: it lies inside `{dim[0]}` in `({' '.join(dim)})`",
        label=Label(span=rule.span),
        notes=(f"first on {fqn}", "only the outermost factor of a tensor dim is cut"),
        help=(Help(text=f'`{rule.name}` may be "whole" here', edits=(Edit(span=rule.span, text='"whole"'),)),),
    )


def placed_apart(
    one: str, other: str, a: PlaceRule | None, b: PlaceRule | None, fqn: str, resolved: Resolved
) -> Diagnostic:
    """Two names that count the same things are placed differently."""
    rules = [rule for rule in (a, b) if rule is not None]
    main, *others = rules or [None]
    span = main.span if main is not None else resolved.spec.mesh_span
    return Diagnostic(
        code="placed-apart",
        message=f"`{one}` and `{other}` count the same things, and must be placed alike",
        label=Label(span=span, text=_said(main) if main is not None else ""),
        labels=tuple(Label(span=rule.span, text=_said(rule)) for rule in others if rule is not None),
        notes=(f"first on {fqn}",),
        help=tuple(_copy(rule, of) for rule, of in ((a, b), (b, a)) if rule is not None and of is not None),
    )


def _copy(rule: PlaceRule, of: PlaceRule) -> Help:
    return Help(text=f"`{rule.name}` may be {of.span.text} here", edits=(Edit(span=rule.span, text=of.span.text),))


# Cuts


def axis_cuts_twice(
    axis: str, names: tuple[str, str], rules: tuple[PlaceRule | None, PlaceRule | None], fqn: str, resolved: Resolved
) -> Diagnostic:
    """One axis cuts two dimensions of a tensor, or of what one module computes over."""
    first, second = rules
    assert first is not None
    assert second is not None
    module = fqn if fqn in resolved.model.by_module else fqn.rpartition(".")[0]
    return Diagnostic(
        code="axis-cuts-twice",
        message=f"`{axis}` cuts both `{names[0]}` and `{names[1]}`",
        label=Label(span=second.span, text=f"cuts `{names[1]}`"),
        labels=(Label(span=first.span, text=f"cuts `{names[0]}`"),) if first is not second else (),
        notes=(f"first on {fqn}; one axis cuts one dimension of what a module computes over",),
        help=tuple(_gather_within(axis, name, module, resolved) for name in names if name in ("seq", "batch")),
    )


def _gather_within(axis: str, name: str, module: str, resolved: Resolved) -> Help:
    """Offer a [within] at the end of the spec under which the module sees the dimension uncut by the axis."""
    from .fold import template

    left = [a for a in resolved.axes(module, name) if a != axis]
    value = (
        '"whole"' if not left else f'"{left[0]}"' if len(left) == 1 else "[" + ", ".join(f'"{a}"' for a in left) + "]"
    )
    source = resolved.spec.source
    end = len(source.text)
    table = f'[within."{template(module)}"] {name} = {value}'
    text = f'\n[within."{template(module)}"]\n{name} = {value}\n'
    return Help(text=f"gather it inside: `{table}`", edits=(Edit(span=source.span(end, end), text=text),))


def uneven_shard(name: str, count: int, axes: tuple[str, ...], fqn: str, resolved: Resolved) -> Diagnostic:
    """A dimension does not divide over the axes that cut it."""
    rule = resolved.rules.decide(fqn, name).rule
    span = rule.span if rule is not None else resolved.spec.mesh_span
    parts = resolved.mesh.product(axes)
    entries = [entry for entry in resolved.spec.mesh if entry.name in axes]
    over = " x ".join(f"`{entry.name}` = {resolved.mesh.size(entry.name)}" for entry in entries)
    steps = resolved.sizes.accumulation if name == "batch" else 1
    over += f" x {steps} accumulation steps" if steps > 1 else ""
    fqns = [t.fqn for t in resolved.model.tensors if any(f[0] == name for f in t.dims)]
    where = f"on {told(fqns, resolved.model.modules)}" if fqns else "a size of the run, not of the model"
    return Diagnostic(
        code="uneven-shard",
        message=f"`{name}` = {count} does not divide over {over}",
        label=Label(span=span, text=f"{count} {name} over {parts * steps} parts"),
        labels=tuple(Label(span=entry.span, text="axis size set here") for entry in entries if entry.size is not None),
        notes=(where,),
        help=tuple(_divisors(entry, count, parts * steps, resolved) for entry in entries if entry.size is not None),
    )


def _divisors(entry: AxisEntry, count: int, parts: int, resolved: Resolved) -> Help:
    size = resolved.mesh.size(entry.name)
    others = parts // size
    fits = [n for n in range(1, size + 1) if count % (n * others) == 0 and size % n == 0]
    return Help(
        text=f"{entry.name} may be {{}} here",
        edits=tuple(Edit(span=entry.span, text=str(n)) for n in fits),
        values=tuple(str(n) for n in fits),
    )


# Values between modules


def needs_whole(name: str, axes: tuple[str, ...], module: str, resolved: Resolved) -> Diagnostic:
    """A module computes over the whole of a dimension that is cut inside it."""
    rule = resolved.rules.decide(module, name).rule
    span = rule.span if rule is not None else resolved.spec.mesh_span
    notes = [f"first on {module}"]
    if name == "seq":
        notes.append("attention looks at every key: a strategy for context parallelism must run over the axis")
    return Diagnostic(
        code="needs-whole",
        message=f"`{_last(module)}` computes over the whole of `{name}`, which {_list(axes)} cuts",
        label=Label(span=span),
        notes=tuple(notes),
        help=(_gather_within(axes[0], name, module, resolved),) if len(axes) == 1 and name != "seq" else (),
    )


def weight_apart(name: str, fqn: str, module: str, resolved: Resolved) -> Diagnostic:
    """A rule places a tensor apart from the module that computes with it."""
    rule = resolved.rules.decide(fqn, name).rule or resolved.rules.decide(module, name).rule
    assert rule is not None
    return Diagnostic(
        code="weight-apart",
        message=f"`{fqn}` has `{name}` on {_axes(resolved.axes(fqn, name))}, its module on "
        f"{_axes(resolved.axes(module, name))}",
        label=Label(span=rule.span),
        notes=("a module computes with its tensors as they are: name the module, not the tensor",),
    )


def store_cuts(axis: Written[str], fqns: Sequence[str], resolved: Resolved) -> Diagnostic:
    """An axis is to store parts of a tensor that it already cuts."""
    return Diagnostic(
        code="store-cuts",
        message=f"`{axis.value}` already cuts the weights while computing, so it cannot store them in parts",
        label=Label(span=axis.span),
        notes=(f"on {told(fqns, resolved.model.modules)}",),
    )


def moves_twice(edge: Edge, axes: Sequence[str], resolved: Resolved) -> Diagnostic:
    """A value would have to be redistributed over two axes at one boundary."""
    rule = _rule_at(edge, resolved)
    return Diagnostic(
        code="moves-twice",
        message=f"the {edge.port} of `{edge.module}` would be redistributed over {_list(axes)} at once",
        label=Label(span=rule.span if rule is not None else resolved.spec.mesh_span),
        notes=("one boundary redistributes over one axis; a module between the two may take one of them",),
    )


def unfinished_sum(edge: Edge, axis: str, resolved: Resolved) -> Diagnostic:
    """A value leaves the model, or enters a module, as a sum that nobody finishes."""
    rule = _rule_at(edge, resolved)
    return Diagnostic(
        code="unfinished-sum",
        message=f"the {edge.port} of `{edge.module}` goes on as an unfinished sum over `{axis}`",
        label=Label(span=rule.span if rule is not None else resolved.spec.mesh_span),
    )


def out_of_order(edge: Edge, dim: int, resolved: Resolved) -> Diagnostic:
    """A cut would have to change under another cut that stays."""
    rule = _rule_at(edge, resolved)
    names = " ".join(edge.names[dim])
    src, dst = edge.src.dims[dim], edge.dst.dims[dim]
    return Diagnostic(
        code="out-of-order",
        message=f"`{names}` goes from {_axes(src)} to {_axes(dst)} at the {edge.port} of `{edge.module}`",
        label=Label(span=rule.span if rule is not None else resolved.spec.mesh_span),
        notes=("a boundary adds or removes the innermost axis of a cut; the outer ones stay in place",),
    )


def _rule_at(edge: Edge, resolved: Resolved) -> PlaceRule | None:
    for dim, factors in enumerate(edge.names):
        if edge.src.dims[dim] != edge.dst.dims[dim]:
            rule = resolved.rules.decide(edge.module, factors[0]).rule
            if rule is not None:
                return rule
    return None


# Words


def _rename(span: Span, guess: str | None) -> tuple[Help, ...]:
    if guess is None:
        return ()
    quoted = span.text[:1] in ("'", '"')
    text = f'"{guess}"' if quoted or not guess.replace("_", "").replace("-", "").isalnum() else guess
    return (Help(text=f"did you mean `{guess}`?", edits=(Edit(span=span, text=text),)),)


def _said(rule: PlaceRule) -> str:
    return f"`{rule.name}` on {_axes(axis.value for axis in rule.axes)}"


def _axes(axes: Iterable[str]) -> str:
    words = tuple(axes)
    return " x ".join(f"`{axis}`" for axis in words) if words else "no axis"


def _list(words: Iterable[str]) -> str:
    shown = [f"`{word}`" for word in words]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else ""


def _last(module: str) -> str:
    return module.rpartition(".")[2] or "the model"
