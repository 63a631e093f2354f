"""The model that a spec names: CARD/FLAVOR of an installed card, or FILE#FLAVOR beside the spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..diagnostics import Bag, Diagnostic, Edit, Help, Label
from ..language.files import lies_outside, outside
from ..language.spec import Spec
from ..near import near
from ..source import Source
from .find import Cards
from .model import Model
from .read import flavors, read_card

#: Flavors that are offered when a model names none.
MOST_FLAVORS = 6


def named_model(spec: Spec, cards: Cards, bag: Bag, *, overlay: Mapping[str, str], inside: str | None) -> Model | None:
    """The flavor that `model` names, or None with a finding.

    Args:
        cards: those that are installed; they keep each model that was read.
        overlay: texts to read in place of files, by path.
        inside: the folder that a card beside the spec has to lie in; None: it may lie anywhere.
        bag: collects `unknown-model`, `unknown-flavor`, `outside-folder`, and what is wrong with the card itself.
    """
    written, span = spec.model.value, spec.model.span
    mark = "#" if "#" in written else "/"
    name, _, flavor = written.partition(mark)
    path = Path(span.source.name).parent / name if mark == "#" else cards.path(name)
    if path is None:
        bag.add(_unknown_model(spec, cards, f"no card `{name}` is installed", flavor))
        return None
    beside = mark == "#" and not span.source.name.startswith("--")  # what a flag names, the user has named
    if beside and inside is not None and outside(path, inside):
        bag.add(lies_outside(name, span))
        return None
    source = _card(path, overlay)
    if source is None:
        bag.add(_unknown_model(spec, cards, f"there is no card file `{name}`", flavor))
        return None
    if mark == "/":  # an installed card is known by its name, wherever it is installed
        source = replace(source, name=f"card:{name}")
    if (source, flavor) in cards.models:
        return cards.models[source, flavor]
    known = flavors(source, Bag())
    if known and flavor not in known:
        bag.add(_unknown_flavor(spec, name, mark, flavor, known))
        return None
    model = read_card(source, flavor, bag, at_span=span)
    if model is not None:
        cards.models[source, flavor] = model
    return model


def _card(path: Path, overlay: Mapping[str, str]) -> Source | None:
    """The text of a card, or None where there is no file."""
    if str(path) in overlay:
        return Source(name=str(path), text=overlay[str(path)])
    try:
        return Source.read(path) if path.is_file() else None
    except (OSError, ValueError):
        return None


def _unknown_model(spec: Spec, cards: Cards, message: str, flavor: str) -> Diagnostic:
    span, name = spec.model.span, spec.model.value.partition("/")[0]
    guess = near(name, cards.names())
    edit = Edit(span=span, text=f'"{guess}/{flavor}"')
    return Diagnostic(
        code="unknown-model",
        message=message,
        label=Label(span=span),
        notes=(f"installed cards: {', '.join(cards.names())}", "a card of your own is FILE#FLAVOR, beside the spec"),
        help=(Help(text=f"did you mean `{guess}/{flavor}`?", edits=(edit,)),) if guess else (),
    )


def _unknown_flavor(spec: Spec, name: str, mark: str, flavor: str, known: tuple[str, ...]) -> Diagnostic:
    """The card is there, and the flavor is not; offers a near one, or all of a few when none is written."""
    guess = near(flavor, known)
    offers = [guess] if guess else list(known) if not flavor and len(known) <= MOST_FLAVORS else []
    models = [f"{name}{mark}{each}" for each in offers]
    help_ = Help(
        text="did you mean {}?",
        edits=tuple(Edit(span=spec.model.span, text=f'"{each}"') for each in models),
        values=tuple(f"`{each}`" for each in models),
    )
    return Diagnostic(
        code="unknown-flavor",
        message=f"`{name}` has no flavor `{flavor}`" if flavor else f"`{spec.model.value}` names no flavor of the card",
        label=Label(span=spec.model.span),
        notes=(f"it has {', '.join(known)}",),
        help=(help_,) if models else (),
    )
