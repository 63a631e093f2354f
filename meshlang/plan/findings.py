"""Findings about names, and about what a rule decides: what is wrong, where, with the numbers, and fixes to try."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..card.model import Model
from ..diagnostics import Diagnostic, Edit, Help, Label
from ..fold import fold, ranges, template, told
from ..language.pattern import Pattern
from ..language.spec import PlaceRule, Recompute, Store, Written
from ..near import near
from ..source import Span
from .words import cut_over, left_out, listed, may_say, own_last, rename, said

if TYPE_CHECKING:
    from .resolved import Resolved


def unknown_dimension(name: str, key: Span, model: Model) -> Diagnostic:
    """A line speaks of a dimension that the model lacks, so it decides nothing."""
    return Diagnostic(
        code="unknown-dimension",
        message=f"`{model.name}` has no dimension `{name}`",
        label=Label(span=key, text="decides nothing"),
        notes=(f"it has {listed(sorted(model.names))}",),
        help=rename(key, near(name, model.names)),
    )


def no_match(pattern: Pattern, span: Span, what: str, known: Sequence[str]) -> Diagnostic:
    """A pattern names nothing that it could be about; `what` are the things of `known`."""
    return Diagnostic(
        code="no-match",
        message=f"`{pattern.text}` names no {what} of the model",
        label=Label(span=span),
        notes=(numbers := _numbers_of(pattern, known)),
        help=() if numbers else rename(span, _nearest(pattern, known)),
    )


def idle_alternative(each: Pattern, span: Span, what: str, known: Sequence[str]) -> Diagnostic:
    """A word in braces, or a number of a list, with which a pattern names nothing."""
    guess = _nearest(each, known)
    notes = _numbers_of(each, known) or ((f"the nearest is `{guess}`",) if guess else ())
    return Diagnostic(
        code="no-match",
        message=f"`{each.text}`, one of the things that this stands for, names no {what} of the model",
        label=Label(span=span),
        notes=notes,
    )


def _numbers_of(pattern: Pattern, known: Sequence[str]) -> tuple[str, ...]:
    """Which numbers there are, for a pattern that only has the wrong ones."""
    parts = pattern.text.split(".")
    for at, part in enumerate(parts):
        if not part.strip("[]").replace("-", "").replace(",", "").isdigit():
            continue
        names = (fqn.split(".") for fqn in known)
        numbers = [name[at] for name in names if len(name) > at and name[:at] == parts[:at] and name[at].isdigit()]
        if numbers:
            return (f"the numbers of `{'.'.join(parts[:at])}` are {ranges(map(int, numbers))}",)
    return ()


def _nearest(pattern: Pattern, known: Sequence[str]) -> str | None:
    """The name with one part spelled otherwise, or the one whose last part is near."""
    parts, templates = pattern.text.split("."), sorted({template(fqn) for fqn in known})
    for each in templates:
        pairs = list(zip(parts, each.split("."), strict=False))
        wrong = [(mine, theirs) for mine, theirs in pairs if mine != theirs]
        if len(pairs) == len(parts) == each.count(".") + 1 and len(wrong) == 1 and near(wrong[0][0], [wrong[0][1]]):
            return each
    tails = {each.rpartition(".")[2]: each for each in templates}
    tail = near(parts[-1], tails)
    return tails[tail] if tail is not None and tail != "weight" else None


def undecided(silent: Mapping[str, Sequence[str]], resolved: Resolved) -> Diagnostic:
    """Dimensions that no rule and no card decides; `silent` says of each where it is."""
    names = list(silent)
    place = next((rule.key for rule in resolved.spec.rules if rule.level == "place" and not rule.preset), None)
    values = [*_tensor_axes(resolved), "whole"]
    lines = ["\n".join(f'{name} = "{value}"' for name in names) + "\n" for value in values]
    where = (told(tensors_first(fqns, resolved), resolved.model.modules) for fqns in silent.values())
    return Diagnostic(
        code="undecided-dimension",
        message=f"no rule says where {listed(names)} {'goes' if len(names) == 1 else 'go'}",
        label=Label(span=place or resolved.spec.mesh_span, text=f"[place] does not name {'it' if place else 'them'}"),
        notes=(
            *(f"`{name}` is on {text}" for name, text in zip(names, where, strict=True)),
            '"whole" says unsharded on purpose',
        ),
        help=(
            Help(
                text="[place] may say {}" if len(names) == 1 else "[place] may say {} of each",
                edits=tuple(_placed(text, place, resolved) for text in lines),
                values=tuple(f'`{names[0]} = "{value}"`' if len(names) == 1 else f'"{value}"' for value in values),
            ),
        ),
    )


def _placed(lines: str, place: Span | None, resolved: Resolved) -> Edit:
    """Lines more in `[place]`, or the table, where the spec has none."""
    if place is not None:
        return Edit(span=place.source.span(place.start, place.start), text=lines)
    source = resolved.spec.source
    end = len(source.text)
    return Edit(span=source.span(end, end), text=f"\n[place]\n{lines}")


def _tensor_axes(resolved: Resolved) -> list[str]:
    """Axes that cut some weight already: likely homes for one that was forgotten."""
    names = {name for tensor in resolved.model.tensors for name in tensor.names}
    axes = [a.value for rule in resolved.spec.rules if rule.name in names for a in rule.axes]
    return list(dict.fromkeys(axes))


def conflict(first: PlaceRule, second: PlaceRule, fqns: Sequence[str], resolved: Resolved) -> Diagnostic:
    """Two rules of one level disagree about the same dimension."""
    first, second = sorted((first, second), key=own_last)
    return Diagnostic(
        code="conflict",
        message=f"two rules of [{second.level}] disagree about `{second.name}`",
        label=Label(span=second.span, text=f"{said(second)} here"),
        labels=(Label(span=first.span, text=f"{said(first)} here"),),
        notes=(
            f"both cover {told(tensors_first(fqns, resolved), resolved.model.modules)}",
            "neither order nor length of a pattern decides",
        ),
        help=_copies(first, second, resolved),
    )


def _copies(one: PlaceRule, other: PlaceRule, resolved: Resolved) -> tuple[Help, Help]:
    """Offer each of two rules the other's value."""
    spec = resolved.spec.source
    return may_say(one, other.span.text, spec), may_say(other, one.span.text, spec)


def decides_nothing(
    rule: PlaceRule, stronger: PlaceRule | None, inside: Iterable[str], resolved: Resolved
) -> Diagnostic:
    """A rule that no tensor and no boundary follows.

    Args:
        stronger: a rule that decides instead, when there is something to decide.
        inside: names of the dimensions that the pattern covers.
    """
    where = f" inside `{rule.pattern.text}`" if rule.pattern is not None else ""
    names = sorted(inside)
    if stronger is not None:
        message = f"this rule decides nothing: stronger ones decide every `{rule.name}`{where}"
    else:
        message = f"this rule decides nothing: there is no `{rule.name}`{where}"
    return Diagnostic(
        code="decides-nothing",
        message=message,
        label=Label(span=rule.key),
        labels=(Label(span=stronger.span, text="decided here"),) if stronger is not None else (),
        notes=(f"there is {listed(names)}",) if stronger is None else (),
        help=(*(rename(rule.key, near(rule.name, names)) if stronger is None else ()), _left_out(rule, resolved)),
    )


def _left_out(rule: PlaceRule, resolved: Resolved) -> Help:
    """Offer to drop the line, or the whole table, when it has no other."""
    source, start, what = rule.key.source, rule.key.start, "line"
    beside = [each for each in resolved.spec.rules if (each.level, each.pattern) == (rule.level, rule.pattern)]
    if len(beside) == 1 and rule.pattern_span is not None:
        start, what = source.offset(rule.pattern_span.line, 1), "table"
    end = min(rule.span.end + 1, len(source.text))
    return Help(text=f"leave the {what} out", edits=(Edit(span=source.span(start, end), text=""),))


def never_cut(word: Written[str]) -> Diagnostic:
    """A name that may be uneven, and that nothing cuts."""
    message = f"this decides nothing: no rule cuts `{word.value}`, so its parts are never uneven"
    return Diagnostic(code="decides-nothing", message=message, label=Label(span=word.key))


def no_sequence(word: Written[int], model: Model) -> Diagnostic:
    """A length of sequences for a model that has none."""
    return Diagnostic(
        code="decides-nothing",
        message=f"`seq` decides nothing: no tensor and no value of `{model.name}` has a dimension `seq`",
        label=Label(span=word.key),
        help=(left_out(word.key, word.span),),
    )


def excepted_twice(store: Store, index: int) -> Diagnostic:
    """A pattern of `except` that leaves out only what the others leave out."""
    return Diagnostic(
        code="decides-nothing",
        message=f"`{store.exceptions[index].text}` decides nothing: all that it names is excepted without it",
        label=Label(span=store.exception_spans[index]),
    )


def nothing_recomputed(table: Recompute) -> Diagnostic:
    """An empty list of modules."""
    return Diagnostic(
        code="decides-nothing",
        message="[recompute] decides nothing: `modules` names none",
        label=Label(span=table.key),
    )


def recomputed_twice(table: Recompute, index: int) -> Diagnostic:
    """A pattern of modules that all run again without it."""
    return Diagnostic(
        code="decides-nothing",
        message=f"`{table.modules[index].text}` decides nothing: all that it names runs again without it",
        label=Label(span=table.pattern_spans[index]),
    )


def nothing_stored(store: Store) -> Diagnostic:
    """`except` leaves out all that `over` would cut."""
    return Diagnostic(
        code="decides-nothing",
        message="[store] decides nothing: `except` leaves out every parameter",
        label=Label(span=store.exception_spans[0]),
        labels=(Label(span=store.over[0].key, text="would cut them at rest"),),
    )


def inner_factor(rule: PlaceRule, dims: Mapping[tuple[str, ...], Sequence[str]], resolved: Resolved) -> Diagnostic:
    """A rule cuts a factor that is not the outermost of its tensor dims; `dims` says of each where it is."""
    outer = listed(dict.fromkeys(dim[0] for dim in dims))
    where = (told(tensors_first(fqns, resolved), resolved.model.modules) for fqns in dims.values())
    return Diagnostic(
        code="inner-factor",
        message=f"`{rule.name}` cannot be cut: it lies inside {outer}",
        label=Label(span=rule.span),
        notes=(
            *(f"`({' '.join(dim)})` on {text}" for dim, text in zip(dims, where, strict=True)),
            "only the outermost factor of a tensor dim is cut",
        ),
        help=(Help(text=f'`{rule.name}` may be "whole" here', edits=(Edit(span=rule.span, text='"whole"'),)),),
    )


def placed_apart(
    names: tuple[str, str], rules: tuple[PlaceRule | None, PlaceRule | None], fqns: Sequence[str], resolved: Resolved
) -> Diagnostic:
    """Two names that count the same things are placed differently."""
    written = [rule for rule in rules if rule is not None]
    main, *others = sorted(written, key=own_last, reverse=True)
    silent = [name for name, rule in zip(names, rules, strict=True) if rule is None]
    notes = [f"on {told(tensors_first(fqns, resolved), resolved.model.modules)}"]
    notes += [f"no rule places `{name}` there, so it is whole" for name in silent]
    return Diagnostic(
        code="placed-apart",
        message=f"`{names[0]}` and `{names[1]}` count the same things, and must be placed alike",
        label=Label(span=main.span, text=said(main)),
        labels=tuple(Label(span=rule.span, text=said(rule)) for rule in others),
        notes=tuple(notes),
        help=_copies(others[0], main, resolved) if others else (),
    )


def weight_apart(rule: PlaceRule, name: str, pairs: Sequence[tuple[str, str]], resolved: Resolved) -> Diagnostic:
    """A rule places tensors apart from the modules that compute with them; `pairs` are (fqn, module)."""
    fqn, module = pairs[0]
    tensors, modules = (fold(names, resolved.model.modules) for names in zip(*pairs, strict=True))
    meant = modules[0] if len(modules) == 1 else None
    owner, note = f"`{module}`", f"`{module}` computes with the same tensor: what is tied is placed alike"
    if fqn.startswith(f"{module}."):
        owner, note = "its module", "a module computes with its tensors as they are: name the module, not the tensor"
    return Diagnostic(
        code="weight-apart",
        message=f"`{tensors[0]}` has `{name}` {cut_over(resolved.axes(fqn, name))}, "
        f"{owner} {cut_over(resolved.axes(module, name))}",
        label=Label(span=rule.span),
        notes=(
            f"on {told([fqn for fqn, _ in pairs], resolved.model.modules)}",
            note,
        ),
        help=rename(rule.pattern_span, meant) if rule.pattern_span is not None else (),
    )


def tensors_first(fqns: Sequence[str], resolved: Resolved) -> list[str]:
    """The tensors among these; where there is none, all of them."""
    tensors = {tensor.fqn for tensor in resolved.model.tensors}
    return [fqn for fqn in fqns if fqn in tensors] or list(fqns)
