"""The life of a spec, in order: text -> Spec -> Resolved -> Plan, and every finding on the way.

    load(request)      files, includes, --set, --on; then the typed reader: one Spec, or all findings
    compile(request)   the card; names and sizes; what follows from them; strategies; laws: one Plan
    check(request)     the same, but gives the findings, with only those fixes that were tried

Each step is a function of its arguments. A step that found something ends the life there: the
next one would only pile follow-on findings on top.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path

from .card.find import Cards
from .card.model import Model
from .card.read import flavors, read_card
from .diagnostics import Bag, Diagnostic, Edit, Help, Label, SpecError
from .language.files import lies_outside, outside
from .language.load import load_document
from .language.read import read
from .language.spec import PluginTable, Spec
from .near import near
from .plan.collectives import finish
from .plan.derive import start, strategy_use
from .plan.flags import flags_agree
from .plan.ir import Plan
from .plan.launchable import launchable
from .plan.names import check_names
from .plan.promises import promises
from .plan.resolve import resolve
from .plan.resolved import Resolved
from .plan.stages import pipeline_context, staged
from .plan.verify import verify
from .registry import Plugins
from .source import Source
from .strategy import Context

#: Fixes that are tried for one spec; findings beyond them offer none.
MOST_TRIED = 64
#: Flavors that are offered when a model names none.
MOST_FLAVORS = 6


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for: a spec, for how many ranks, with what laid over it.

    Attributes:
        source: the spec's own text.
        ranks: of the whole mesh; None where the spec says enough.
        sets: `key=value` items that win over the files.
        on: the machine of `[topology.on]`.
        launch: hold the plan against what the trainer can run even when the spec has no recipe.
        overlay: texts to read in place of files, by path.
        inside: the folder that includes, cards and orders have to lie in; None: they may lie anywhere.
    """

    source: Source
    ranks: int | None = None
    sets: tuple[str, ...] = ()
    on: str | None = None
    launch: bool = False
    overlay: Mapping[str, str] = field(default_factory=dict)
    inside: str | None = None
    plugins: Plugins = field(default_factory=Plugins)
    cards: Cards = field(default_factory=Cards)

    @classmethod
    def of(cls, path: str | Path, **options: object) -> Request:
        """A request for the spec in a file.

        Raises:
            OSError: the file cannot be read.
        """
        return cls(source=Source.read(path), **options)  # pyright: ignore[reportArgumentType]


def load(request: Request) -> Spec:
    """The spec as written, every file merged.

    Raises:
        SpecError: with all findings of the first step that has any.
    """
    bag = Bag()
    document = load_document(
        request.source, sets=request.sets, on=request.on, overlay=request.overlay, inside=request.inside, bag=bag
    )
    bag.check()
    assert document is not None
    spec = read(document, bag, request.plugins)
    bag.check()
    assert spec is not None
    return spec


def compile(request: Request) -> Plan:
    """The plan of a spec.

    Raises:
        SpecError: with all findings of the first step that has any.
    """
    spec = load(request)
    return plan_of(spec, resolved_of(spec, request), launch=request.launch, inside=request.inside)


def resolved_of(spec: Spec, request: Request) -> Resolved:
    """The spec with its model's card read, names and sizes known."""
    bag = Bag()
    model = find_model(spec, request, bag)
    bag.check()
    assert model is not None
    resolved = resolve(spec, model, request.ranks, bag)
    bag.check()
    assert resolved is not None
    _other_machines(spec, request, bag)
    bag.check()
    return resolved


def _other_machines(spec: Spec, request: Request, bag: Bag) -> None:
    """Machines that are not chosen speak of what is there too; how many ranks they have, nobody has said."""
    for name in spec.machines:
        try:
            variant = load(replace(request, on=name))
        except SpecError:  # what their own lines say wrong was found when the spec was read
            continue
        model = find_model(variant, request, bag)
        if model is not None:
            check_names(variant, model, bag)


def plan_of(spec: Spec, resolved: Resolved, *, launch: bool = False, inside: str | None = None) -> Plan:
    """What follows from a resolved spec, rewritten by its strategies and held against the laws."""
    bag = Bag()
    plan = reduce(lambda plan, table: _apply(plan, table, bag), _in_order(spec), start(resolved))
    if spec.pipeline is not None:
        table = spec.pipeline.schedule
        _collect(table.plugin.check(replace(pipeline_context(plan, resolved), inside=inside)), bag)
        bag.check()
        plan = staged(plan, resolved, bag)
    bag.check()
    verify(plan, resolved, bag)
    bag.check()
    plan = finish(plan)
    promises(plan, resolved, bag)
    if launch or (spec.launch is not None and spec.launch.recipe is not None):
        launchable(plan, resolved, bag)
        flags_agree((), plan, spec, bag)
    bag.check()
    return plan


def _in_order(spec: Spec) -> list[PluginTable]:
    """Strategies by name: nothing depends on the order of lines."""
    return sorted(spec.strategies, key=lambda table: table.name.value)


def _apply(plan: Plan, table: PluginTable, bag: Bag) -> Plan:
    before = len(bag)
    _collect(table.plugin.check(Context(plan=plan, table=table)), bag)
    if len(bag) > before:
        return plan
    use = strategy_use(table.name.value, table.plugin, type(table.plugin).ops)
    return replace(table.plugin.apply(plan), strategies=(*plan.strategies, use))


def _collect(found: Iterable[Diagnostic], bag: Bag) -> None:
    for diagnostic in found:
        bag.add(diagnostic)


def find_model(spec: Spec, request: Request, bag: Bag) -> Model | None:
    """The flavor that `model` names: CARD/FLAVOR of an installed card, or FILE#FLAVOR beside the spec."""
    written, span = spec.model.value, spec.model.span
    mark = "#" if "#" in written else "/"
    name, _, flavor = written.partition(mark)
    path = Path(span.source.name).parent / name if mark == "#" else request.cards.path(name)
    if path is None:
        bag.add(_unknown_model(spec, request.cards, f"no card `{name}` is installed", flavor))
        return None
    kept = mark == "#" and not span.source.name.startswith("--")
    if kept and request.inside is not None and outside(path, request.inside):
        bag.add(lies_outside(name, span))
        return None
    source = _card(path, request.overlay)
    if source is None:
        bag.add(_unknown_model(spec, request.cards, f"there is no card file `{name}`", flavor))
        return None
    if mark == "/":  # an installed card is known by its name, wherever it is installed
        source = replace(source, name=f"card:{name}")
    if (source, flavor) in request.cards.models:
        return request.cards.models[source, flavor]
    known = flavors(source, Bag())
    if known and flavor not in known:
        bag.add(_unknown_flavor(spec, name, mark, flavor, known))
        return None
    model = read_card(source, flavor, bag, at_span=span)
    if model is not None:
        request.cards.models[source, flavor] = model
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
    return Diagnostic(
        code="unknown-flavor",
        message=f"`{name}` has no flavor `{flavor}`" if flavor else f"`{spec.model.value}` names no flavor of the card",
        label=Label(span=spec.model.span),
        notes=(f"it has {', '.join(known)}",),
        help=(
            Help(
                text="did you mean {}?",
                edits=tuple(Edit(span=spec.model.span, text=f'"{each}"') for each in models),
                values=tuple(f"`{each}`" for each in models),
            ),
        ),
    )


def check(request: Request) -> tuple[Diagnostic, ...]:
    """All findings of the first step that has any; none when the spec is fine.

    A fix is offered only when it was tried: with it the finding is gone, and no other has come.
    """
    found, step = _findings(request)
    told, left = [], MOST_TRIED if len(found) <= MOST_TRIED else 0
    for each in found:
        fixes = each.help if sum(len(help_.edits) for help_ in each.help) <= left else ()
        left -= sum(len(help_.edits) for help_ in fixes)
        told.append(replace(each, help=tuple(_tried(replace(each, help=fixes), found, step, request))))
    return tuple(told)


def _findings(request: Request) -> tuple[tuple[Diagnostic, ...], int]:
    """(findings, the number of the step that found them)."""
    try:
        spec = load(request)
    except SpecError as error:
        return error.diagnostics, 0
    try:
        plan_of(spec, resolved_of(spec, request), launch=request.launch, inside=request.inside)
    except SpecError as error:
        return error.diagnostics, 1
    return (), 2


def _tried(finding: Diagnostic, found: tuple[Diagnostic, ...], step: int, request: Request) -> Iterable[Help]:
    for help_ in finding.help:
        kept = [i for i, edit in enumerate(help_.edits) if _mends(edit, finding, found, step, request)]
        if kept:
            values = tuple(help_.values[i] for i in kept) if help_.values else ()
            yield Help(text=help_.text, edits=tuple(help_.edits[i] for i in kept), values=values)


def _mends(edit: Edit, finding: Diagnostic, found: tuple[Diagnostic, ...], step: int, request: Request) -> bool:
    after, reached = _findings(_edited(request, edit))
    if reached != step:
        return reached > step
    known = {(d.code, d.message) for d in found}
    left = {(d.code, d.message) for d in after}
    return left <= known - {(finding.code, finding.message)}


def _edited(request: Request, edit: Edit) -> Request:
    source = edit.span.source
    text = source.text[: edit.span.start] + edit.text + source.text[edit.span.end :]
    if source.name == request.source.name:
        return replace(request, source=Source(name=source.name, text=text))
    if source.name == "--on":
        return replace(request, on=text)
    if source.name == "--set":
        return replace(request, sets=tuple(text if item == source.text else item for item in request.sets))
    return replace(request, overlay={**request.overlay, source.name: text})
