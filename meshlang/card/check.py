"""A card held against the real model: what either has and the other lacks, and where they differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..diagnostics import Bag, Diagnostic, Help, Label
from ..fixes import Found, tried
from ..fold import fold, told
from ..language.toml import Node, scan
from ..near import near
from ..source import Source, Span
from .dims import dims_text
from .facts import Facts, TensorFact
from .fields import rename
from .model import Boundary, Model, TensorEntry
from .read import read_card


def check_card(source: Source, flavor: str, facts: Facts) -> tuple[Diagnostic, ...]:
    """Every difference between a flavor of a card and a model; what keeps the card from being read first.

    Equal differences of many layers are one finding. A fix is offered when it was tried: with it
    the finding goes away and no other comes.
    """
    return tried(_found(source, flavor, facts), lambda edit: _found(edit.applied(), flavor, facts))


def _found(source: Source, flavor: str, facts: Facts) -> Found:
    return Found(findings=_differences(source, flavor, facts))


def _differences(source: Source, flavor: str, facts: Facts) -> tuple[Diagnostic, ...]:
    bag = Bag()
    model = read_card(source, flavor, bag)
    root = scan(source, Bag())
    if model is None or root is None:
        return tuple(bag)
    for law in (_missing, _extra, _shapes, _ties, _boundaries):
        for diagnostic in law(model, root.value, facts):
            bag.add(diagnostic)
    return tuple(bag)


def _entries(model: Model) -> dict[str, TensorEntry]:
    return {name: tensor for tensor in model.tensors for name in (tensor.fqn, *tensor.tied)}


def _missing(model: Model, tables: Mapping[str, Node], facts: Facts) -> Iterator[Diagnostic]:
    """Tensors of the model that the card lacks."""
    entries = _entries(model)
    lacking = [tensor for tensor in facts.tensors if tensor.fqn not in entries]
    extra = [name for name in entries if name not in facts.by_fqn]
    for tensors in _alike(lacking, [tensor.fqn for tensor in facts.tensors]):
        first = tensors[0]
        names = [tensor.fqn for tensor in tensors]
        message = f"the card lacks the {first.kind} {_told(names, facts)} of shape {first.shape}"
        guess = near(fold(names, facts.by_fqn)[0], fold(extra, entries))
        notes = (f"the nearest that only the card has is `{guess}`",) if guess else ()
        others = sum(_template(name) == _template(names[0]) for name in entries)
        notes = (f"the card has {others} of other layers",) if others else notes
        yield _finding("card-missing", message, _table(tables, first.kind, model), notes)


def _alike(tensors: Iterable[TensorFact], known: Iterable[str]) -> Iterator[list[TensorFact]]:
    """Tensors of one kind and shape whose names differ by a layer's number."""
    groups: dict[tuple[str, ...], list[TensorFact]] = {}
    known = tuple(known)
    for tensor in tensors:
        key = (_template(tensor.fqn), tensor.kind, str(tensor.shape))
        groups.setdefault(key, []).append(tensor)
    yield from groups.values()


def _template(fqn: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in fqn.split("."))


def _table(tables: Mapping[str, Node], kind: str, model: Model) -> Span:
    node = tables.get("param" if kind == "parameter" else "buffer")
    return model.span if node is None else node.key or node.span


def _extra(model: Model, tables: Mapping[str, Node], facts: Facts) -> Iterator[Diagnostic]:
    """Tensors of the card that the model lacks, or has as another kind."""
    entries, known = _entries(model), facts.by_fqn
    groups: dict[tuple[Span, str, str], list[str]] = {}
    for name, entry in entries.items():
        held = known[name].kind if name in known else ""
        if held != entry.kind:
            groups.setdefault((entry.key or entry.span, entry.kind, held), []).append(name)
    lacking = [tensor.fqn for tensor in facts.tensors if tensor.fqn not in entries]
    for (span, kind, held), names in groups.items():
        if held:
            yield _finding("card-extra", f"{_told(names, facts)} is a {held} of the model, not a {kind}", span)
            continue
        guess = near(fold(names, entries)[0], fold(lacking, known))
        notes = (f"the nearest that only the model has is `{guess}`",) if guess else ()
        help_ = (rename(span, guess.removesuffix(".weight")),) if guess else ()
        yield _finding("card-extra", f"the model has no {kind} {_told(names, entries)}", span, notes, help_)


def _shapes(model: Model, tables: Mapping[str, Node], facts: Facts) -> Iterator[Diagnostic]:
    """Tensors whose shape in the card is not that in the model."""
    known = facts.by_fqn
    groups: dict[tuple[Span, tuple[int, ...]], list[tuple[str, TensorEntry]]] = {}
    for name, entry in _entries(model).items():
        shape = tuple(model.size(factors) for factors in entry.dims)
        if name in known and known[name].shape != shape:
            groups.setdefault((entry.span, known[name].shape), []).append((name, entry))
    for (span, real), members in groups.items():
        entry = members[0][1]
        shape = tuple(model.size(factors) for factors in entry.dims)
        message = f"{_told([name for name, _ in members], facts)} is {shape} in the card and {real} in the model"
        yield _finding("card-shape", message, span, tuple(_unequal(entry, real, model)))


def _unequal(entry: TensorEntry, real: tuple[int, ...], model: Model) -> Iterator[str]:
    if len(real) != len(entry.dims):
        yield f"the card names {len(entry.dims)} dims, the model has {len(real)}"
        return
    for dim, (factors, size) in enumerate(zip(entry.dims, real, strict=True)):
        if model.size(factors) != size:
            numbers = " x ".join(f"{name} {model.sizes[name]}" for name in factors)
            yield f"dim {dim}, `{dims_text((factors,))}`: {numbers} in the card, {size} in the model"


def _ties(model: Model, tables: Mapping[str, Node], facts: Facts) -> Iterator[Diagnostic]:
    """Parameters that are one tensor on one side, and two on the other."""
    entries, known = _entries(model), facts.by_fqn
    told_: set[frozenset[str]] = set()
    for name, entry in entries.items():
        if entry.kind != "parameter" or name not in known:
            continue
        here = frozenset((entry.fqn, *entry.tied)) & known.keys()
        there = frozenset((name, *known[name].tied)) & entries.keys()
        if here == there or here | there in told_:
            continue
        told_.add(frozenset(here | there))
        yield _untied(here, there, entry)


def _untied(here: frozenset[str], there: frozenset[str], entry: TensorEntry) -> Diagnostic:
    more, side = (there, "model") if there - here else (here, "card")
    names = ", ".join(f"`{name}`" for name in sorted(more))
    message = f"{names} are one tensor in the {side}, and not in the {'card' if side == 'model' else 'model'}"
    note = "`[tied]` names such tensors, and `tied = true` in a flavor makes them one"
    return _finding("card-tie", message, entry.span, (note,))


def _boundaries(model: Model, tables: Mapping[str, Node], facts: Facts) -> Iterator[Diagnostic]:
    """Boundaries of modules that the model lacks, and inputs that a forward lacks."""
    lacking: dict[Span, list[str]] = {}
    unnamed: dict[tuple[Span, str, tuple[str, ...]], list[str]] = {}
    for boundary in model.boundaries:
        module = facts.modules.get(boundary.module)
        if module is None:
            lacking.setdefault(boundary.span, []).append(boundary.module)
            continue
        for name, _ in boundary.inputs:
            if name not in module.inputs and not module.open:
                unnamed.setdefault((_input(boundary, name, tables), name, module.inputs), []).append(boundary.module)
    for span, names in lacking.items():
        guess = near(fold(names, model.by_module)[0], fold(facts.modules, facts.modules))
        notes = (f"the nearest is `{guess}`",) if guess else ()
        help_ = (rename(span, guess),) if guess else ()
        message = f"the model has no module {_told(names, model.by_module)}"
        yield _finding("card-boundary", message, span, notes, help_)
    for (span, name, inputs), names in unnamed.items():
        guess = near(name, inputs) or (inputs[0] if len(inputs) == 1 else None)
        message = f"the forward of {_told(names, facts.modules)} takes no `{name}`"
        notes = (f"it takes {', '.join(inputs) or 'nothing by name'}",)
        yield _finding("card-boundary", message, span, notes, (rename(span, guess),) if guess else ())


def _input(boundary: Boundary, name: str, tables: Mapping[str, Node]) -> Span:
    """Where the card names an input."""
    for node in tables["activation"].value.values():
        if (node.key or node.span) == boundary.span:
            entry = node.value["input"].value[name]
            return entry.key or entry.span
    return boundary.span


def _told(names: list[str], known: Facts | Iterable[str]) -> str:
    """Folded names in quotes, and how many they are."""
    text = told(names, known.by_fqn if isinstance(known, Facts) else known)
    pattern, mark, count = text.partition(" (")
    return f"`{pattern}`{mark}{count}" if names[0] else "of the root"


def _finding(
    code: str, message: str, span: Span, notes: tuple[str, ...] = (), help_: tuple[Help, ...] = ()
) -> Diagnostic:
    return Diagnostic(code=code, message=message, label=Label(span=span), notes=notes, help=help_)
