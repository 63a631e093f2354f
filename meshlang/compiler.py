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
from .card.named import named_model
from .diagnostics import Bag, Diagnostic, Edit, SpecError
from .fixes import Found, tried
from .language.load import load_document
from .language.read import read
from .language.spec import PluginTable, Spec
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
    """The flavor of a card that the spec names, or None with a finding."""
    return named_model(spec, request.cards, bag, overlay=request.overlay, inside=request.inside)


def check(request: Request) -> tuple[Diagnostic, ...]:
    """All findings of the first step that has any; none when the spec is fine.

    A fix is offered only when it was tried: with it the finding is gone, and no other has come.
    """
    return tried(_found(request), lambda edit: _found(_edited(request, edit)))


def _found(request: Request) -> Found:
    """What is found, and whether it was in the text or in what the text says."""
    try:
        spec = load(request)
    except SpecError as error:
        return Found(findings=error.diagnostics, step=0)
    try:
        plan_of(spec, resolved_of(spec, request), launch=request.launch, inside=request.inside)
    except SpecError as error:
        return Found(findings=error.diagnostics, step=1)
    return Found(step=2)


def _edited(request: Request, edit: Edit) -> Request:
    """The request with an edit made, in the spec, a file that it includes or a flag of the command line."""
    old, new = edit.span.source, edit.applied()
    if old.name == request.source.name:
        return replace(request, source=new)
    if old.name == "--on":
        return replace(request, on=new.text)
    if old.name == "--set":
        return replace(request, sets=tuple(new.text if item == old.text else item for item in request.sets))
    return replace(request, overlay={**request.overlay, old.name: new.text})
