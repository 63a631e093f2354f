"""Card text -> one flavor, written out. A card is read with the same care as a spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ..diagnostics import Bag, Label
from ..language.toml import Node, scan
from ..near import near
from ..source import Source, Span
from .dims import named_twice, parse_dims
from .fields import Fields
from .model import RUN_SIZES, Factors, Loss, Model
from .ports import read_boundaries, read_flow
from .saved import read_saved
from .splits import read_split
from .tensors import placed_in, read_tensors, tie
from .units import read_units

__all__ = ["flavors", "parse_dims", "read_card"]

#: The card version that is known.
VERSION = 1

_TOP = (
    "card",
    "model",
    "whole",
    "units",
    "flavor",
    "param",
    "buffer",
    "activation",
    "flow",
    "same",
    "tied",
    "split",
    "saved",
    "loss",
)


def flavors(source: Source, bag: Bag) -> tuple[str, ...]:
    """The names of a card's flavors, in the order that they stand in."""
    root = scan(source, bag)
    if root is None:
        return ()
    return tuple(Fields(source=source, bag=bag).table(root.value.get("flavor"), "`flavor`"))


def read_card(source: Source, flavor: str, bag: Bag, *, at_span: Span | None = None) -> Model | None:
    """The model that `flavor` of the card in `source` describes, or None with findings in the bag.

    Args:
        at_span: where a spec names the flavor; an unknown flavor is a finding there.
    """
    root = scan(source, bag)
    if root is None:
        return None
    tables: Mapping[str, Node] = root.value
    fields = Fields(source=source, bag=bag)
    before = len(bag)
    if not _version(tables, fields):
        return None
    fields.keys(tables, _TOP, "a card")
    sizes, tied = _sizes(tables, flavor, at_span, fields)
    if len(bag) > before:
        return None
    model = _model(root, f"{_name(tables, fields)}/{flavor}", replace(fields, sizes=sizes), tied=tied)
    return model if len(bag) == before else None


def _version(tables: Mapping[str, Node], fields: Fields) -> bool:
    node = tables.get("card")
    if node is None:
        fields.add("missing-key", f"a card says its version: `card = {VERSION}`", fields.source.span(0, 0))
    elif isinstance(node.value, bool) or not isinstance(node.value, int):
        fields.add("wrong-type", f"the version is a whole number: `card = {VERSION}`", node.span)
    elif node.value != VERSION:
        fields.add("unknown-version", f"cards of version {VERSION} are known, not {node.value}", node.span)
    else:
        return True
    return False


def _name(tables: Mapping[str, Node], fields: Fields) -> str:
    node = tables.get("model")
    if node is None:
        fields.add("missing-key", 'a card says what it describes: `model = "NAME"`', fields.source.span(0, 0))
        return ""
    return fields.text(node, "`model`") or ""


def _sizes(
    tables: Mapping[str, Node], flavor: str, at_span: Span | None, fields: Fields
) -> tuple[dict[str, int], bool]:
    """(the sizes of the flavor, tied); what is of a wrong type in the others is a finding too."""
    known = fields.table(tables.get("flavor"), "`flavor`")
    read = {name: _flavor(node, name, fields, ties="tied" in tables) for name, node in known.items()}
    if flavor in read:
        return read[flavor]
    notes = (f"it has {', '.join(known)}",) if known else ("it has none: write a `[flavor.NAME]`",)
    where = at_span or (tables["flavor"].span if "flavor" in tables else fields.source.span(0, 0))
    guess = near(flavor, known)
    notes = (*notes, f"the nearest is `{guess}`") if guess else notes
    fields.add("unknown-flavor", f"`{fields.source.name}` has no flavor `{flavor}`", where, notes=notes)
    return {}, False


def _flavor(node: Node, name: str, fields: Fields, *, ties: bool) -> tuple[dict[str, int], bool]:
    sizes: dict[str, int] = {}
    tied = False
    for key, entry in fields.table(node, f"the flavor `{name}`").items():
        if key == "tied":
            tied = entry.value is True
            if not isinstance(entry.value, bool):
                fields.add("wrong-type", "`tied` is true or false", entry.span)
            elif tied and not ties:
                fields.add("card-tie", "this flavor is tied, and no `[tied]` says which tensors are one", entry.span)
        elif key in RUN_SIZES:
            fields.add("card-size", f"`{key}` is of the run: a spec's `[sizes]` has it", entry.key or entry.span)
        elif isinstance(entry.value, bool) or not isinstance(entry.value, int):
            fields.add("wrong-type", f"the size `{key}` is a whole number", entry.span)
        elif entry.value < 1:
            fields.add("card-size", f"the size `{key}` is {entry.value}; it is 1 or more", entry.span)
        else:
            sizes[key] = entry.value
    return sizes, tied


def _model(root: Node, name: str, fields: Fields, *, tied: bool) -> Model:
    tables: Mapping[str, Node] = root.value
    boundaries = read_boundaries(tables, fields)
    tensors = tie(tables, read_tensors(tables, fields), fields, tied=tied)
    model = Model(
        name=name,
        sizes=fields.sizes,
        tensors=placed_in(tensors, boundaries, fields),
        boundaries=boundaries,
        flow=read_flow(tables, boundaries, fields),
        same={},
        whole=frozenset(),
        units=read_units(tables, tensors, fields),
        loss=_loss(tables, fields),
        saved=read_saved(tables, boundaries, fields),
        span=tables["model"].span if "model" in tables else root.span,
    )
    _check_sizes(model, fields)
    _check_whole_inside(model, fields)
    _check_added(model, fields)
    _check_made(model, fields)
    whole = frozenset(_whole(tables, model, fields))
    split = read_split(tables, model, fields)
    model = replace(model, whole=whole, same=_same(tables, model, fields), split=split)
    _check_kin(model, fields)
    return model


def _whole(tables: Mapping[str, Node], model: Model, fields: Fields) -> Iterator[str]:
    for node in fields.nodes(tables.get("whole"), "`whole`"):
        if _named(node.value, node.span, model.names, fields):
            yield node.value


def _same(tables: Mapping[str, Node], model: Model, fields: Fields) -> dict[str, str]:
    """Name -> the name of its class, one step away."""
    found: dict[str, str] = {}
    for name, node in fields.table(tables.get("same"), "`same`").items():
        other = fields.text(node, "the name that counts the same things")
        known = _named(name, node.key or node.span, model.names, fields)
        if other is None or not _named(other, node.span, model.names, fields) or not known:
            continue
        if other == name:
            fields.add("card-dims", f"`{name}` counts the same things as itself", node.span)
        else:
            found[name] = other
    for name, other in found.items():
        if other in found:
            note = "the name on the right stands for the class, and has no class of its own"
            fields.add(
                "card-dims", f"`{other}` is on both sides of `same`", tables["same"].value[name].span, notes=(note,)
            )
    return found


def _named(name: str, span: Span, known: Iterable[str], fields: Fields) -> bool:
    """True for a dimension that a tensor or a boundary has."""
    if name in known:
        return True
    fields.add("card-dims", f"`{name}` is no dimension of a tensor or boundary", span, guess=near(name, known))
    return False


def _loss(tables: Mapping[str, Node], fields: Fields) -> Loss | None:
    if "loss" not in tables:
        return None
    entries = fields.table(tables["loss"], "`loss`")
    fields.keys(entries, ("logits", "vocab"), "`loss`")
    for key in ("logits", "vocab"):
        if key not in entries:
            fields.add("missing-key", f"`loss` says its `{key}`", tables["loss"].key or tables["loss"].span)
    if not {"logits", "vocab"} <= entries.keys():
        return None
    logits, vocab = fields.dims(entries["logits"]), fields.text(entries["vocab"], "the name of the vocabulary")
    if vocab is None:
        return None
    outer = [factors[0] for factors in logits]
    if vocab not in outer:
        span = entries["vocab"].span
        fields.add("card-dims", f"`{vocab}` is no dim of the logits", span, guess=near(vocab, outer))
    return Loss(logits=logits, vocab=vocab)


def _check_sizes(model: Model, fields: Fields) -> None:
    """Every name of a tensor has a size, every name of a boundary too, or is of the run."""
    run = {*model.sizes, *RUN_SIZES}
    asked = [(t.dims, model.sizes.keys(), t.span) for t in model.tensors]
    asked += [(dims, run, b.span) for b in model.boundaries for _, dims in b.ports()]
    asked += [(model.loss.logits, run, model.span)] if model.loss is not None else []
    missing: dict[str, list[Span]] = {}
    for dims, known, span in asked:
        for name in _all(dims):
            if name not in known:
                missing.setdefault(name, []).append(span)
    flavor = model.name.rpartition("/")[2]
    for name, spans in missing.items():
        guess = near(name, model.sizes)
        notes = (f"the nearest is `{guess}`",) if guess else ()
        labels = tuple(Label(span=span, text="and here") for span in dict.fromkeys(spans[1:]) if span != spans[0])
        message = f"flavor `{flavor}` gives no size for `{name}`"
        fields.add("card-size", message, spans[0], notes=notes, labels=labels[:3])


def _all(dims: tuple[Factors, ...]) -> tuple[str, ...]:
    return tuple(name for factors in dims for name in factors)


def _check_whole_inside(model: Model, fields: Fields) -> None:
    """A module computes as a whole over dimensions that it has."""
    for boundary in model.boundaries:
        here = {name for _, dims in boundary.ports() for name in _all(dims)}
        here.update(name for tensor in model.held.get(boundary.module, ()) for name in tensor.names)
        for name in boundary.whole:
            if name not in here:
                guess = near(name, here)
                notes = (f"the nearest is `{guess}`",) if guess else ()
                message = f"`{name}`, whole inside, is no dimension of this boundary"
                fields.add("card-dims", message, boundary.span, notes=notes)
        ports = {name: set(_all(dims)) for name, dims in boundary.inputs}
        for port, name in boundary.whole_inputs:
            if name not in ports.get(port, ()):
                message = f"`{port}.{name}`, whole inside, is no dimension of an input of this boundary"
                fields.add("card-dims", message, boundary.span)


def _check_added(model: Model, fields: Fields) -> None:
    """What a module adds to its output is a parameter of its own, along dims of the output."""
    told: set[tuple[Span, str]] = set()
    for boundary in model.boundaries:
        prefix = f"{boundary.module}." if boundary.module else ""
        held = [t for t in model.held.get(boundary.module, ()) if t.kind == "parameter"]
        here = {name.removeprefix(prefix): t for t in held for name in (t.fqn, *t.tied) if name.startswith(prefix)}
        out = {name for factors in boundary.output or () for name in factors}
        for name in boundary.added:
            if (name in here and here[name].names <= out) or (boundary.span, name) in told:
                continue
            told.add((boundary.span, name))
            if name in here:
                message = f"`{name}` is added to an output that has no `{min(here[name].names - out)}`"
            else:
                message = f"`{name}`, which is added, is no parameter that this boundary computes with"
            fields.add("card-boundary", message, boundary.span, guess=near(name, here))


def _check_made(model: Model, fields: Fields) -> None:
    """What a model makes itself is an input inside it, and comes from nowhere else."""
    given, told = set(model.flow.values()), set[tuple[Span, str]]()
    for boundary in model.boundaries:
        inputs = [each for each, _ in boundary.inputs]
        for name in boundary.made:
            if (boundary.span, name) in told:
                continue
            told.add((boundary.span, name))
            if name not in inputs:
                message = f"`{name}`, which the model makes, is no input of this boundary"
                fields.add("card-boundary", message, boundary.span, guess=near(name, inputs))
            elif not boundary.module:
                fields.add("card-boundary", f"`{name}` comes from outside of the model", boundary.span)
            elif (boundary.module, f"input.{name}") in given:
                fields.add("card-flow", f"the model makes `{name}`, and a flow gives it", boundary.span)


def _check_kin(model: Model, fields: Fields) -> None:
    """Two dims of one tensor do not count the same things: an axis would cut both."""
    for tensor in model.tensors:
        kin = [model.kin(factors[0]) for factors in tensor.dims]
        if len(set(kin)) < len(kin) and named_twice(tensor.dims) is None:
            fields.add("card-dims", f"two dims of `{tensor.fqn}` count the same things", tensor.span)
