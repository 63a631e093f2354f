"""Spec + Model -> Resolved: sizes known, and for each tensor dim the rule that decides it.

Levels, weak to strong: card < strategies < `[place]` < `[within]` < `[at]`. The stronger level
decides, per dimension name; inside a level two rules that disagree are a finding, never an order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..card.model import Factors, Model
from ..diagnostics import Bag
from ..fold import template
from ..language.pattern import Pattern
from ..language.spec import LEVELS, AxisEntry, PlaceRule, Spec, Written
from ..mesh import KNOWN_AXES, Mesh
from ..source import Span
from . import cut_findings, findings, mesh_findings
from .alike import Alike, folded
from .idle import allowances_used, exceptions_used, recomputing_used
from .ir import Origin, Precision, RunSizes
from .mesh import check_order, inside_nodes, resolve_mesh
from .strategies import strategy_axes, strategy_rules, written_axis


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The axes that cut a dimension, outer first, and the rule that said so; None is the card."""

    axes: tuple[str, ...]
    rule: PlaceRule | None


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """A spec whose names and sizes are known.

    `decide` answers for any fqn and dimension name; it never guesses: what nobody decided was a
    finding before this object existed.
    """

    spec: Spec
    model: Model
    mesh: Mesh
    sizes: RunSizes
    precision: Precision
    rules: Rules

    @cached_property
    def stand_ins(self) -> dict[str, str]:
        """Fqn -> that of the same thing in the first layer that is alike."""
        return Alike(self.model, self._holding).stand_ins()

    def _holding(self, fqn: str) -> tuple[object, ...]:
        """All of the spec that tells this fqn from others."""
        exceptions = self.spec.store.exceptions if self.spec.store is not None else ()
        return (*self.rules.covering(fqn), *(pattern for pattern in exceptions if pattern.covers(fqn)))

    @cached_property
    def folded(self) -> Resolved:
        """The same for a model with one layer of each kind."""
        return replace(self, model=folded(self.model, self.stand_ins))

    def axes(self, fqn: str, name: str) -> tuple[str, ...]:
        """The axes of size > 1 or not that cut `name` inside `fqn`."""
        return self.rules.decide(fqn, name).axes

    def origin(self, fqn: str, name: str) -> Origin:
        """Who decided `name` inside `fqn`."""
        rule = self.rules.decide(fqn, name).rule
        return origin_of(rule.level, rule.span) if rule is not None else origin_of("card", self.model.span)


@dataclass(frozen=True)
class Rules:
    """All rules of a spec, asked by fqn and name."""

    rules: tuple[PlaceRule, ...]
    whole: frozenset[str]
    _cover: dict[str, tuple[PlaceRule, ...]] = field(default_factory=dict)
    _found: dict[tuple[str, str], Decision] = field(default_factory=dict)

    def covering(self, fqn: str) -> tuple[PlaceRule, ...]:
        """Rules that hold inside `fqn`, strong first."""
        if fqn not in self._cover:
            holding = [r for r in self.rules if r.pattern is None or r.pattern.covers(fqn)]
            self._cover[fqn] = tuple(sorted(holding, key=lambda rule: -LEVELS.index(rule.level)))
        return self._cover[fqn]

    def candidates(self, fqn: str, name: str) -> tuple[PlaceRule, ...]:
        """Rules of the strongest level that speaks of `name` inside `fqn`."""
        speaking = [rule for rule in self.covering(fqn) if rule.name == name]
        return tuple(rule for rule in speaking if rule.level == speaking[0].level)

    def decide(self, fqn: str, name: str) -> Decision:
        """The decision for `name` inside `fqn`; the card's "whole" when no rule speaks of it."""
        key = (fqn, name)
        if key not in self._found:
            rules = self.candidates(fqn, name)
            axes = tuple(axis.value for axis in rules[0].axes) if rules else ()
            self._found[key] = Decision(axes=axes, rule=rules[0] if rules else None)
        return self._found[key]


def origin_of(by: str, span: Span) -> Origin:
    """Where a decision stands, as plain data."""
    return Origin(by=by, file=span.source.name, line=span.line, column=span.column)


def resolve(spec: Spec, model: Model, ranks: int | None, bag: Bag) -> Resolved | None:
    """The spec with sizes and names known, or None with all that cannot be in the bag."""
    mesh = resolve_mesh(spec, ranks, bag)
    rules = Rules(rules=(*spec.rules, *strategy_rules(spec, model)), whole=model.whole)
    _check_names(spec, model, bag)
    _check_axes(spec, bag)
    if mesh is None or len(bag):
        return None
    sizes, precision = _run_sizes(spec), _precision(spec)
    resolved = Resolved(spec=spec, model=model, mesh=mesh, sizes=sizes, precision=precision, rules=rules)
    inside_nodes(spec, mesh, bag)
    for laws in (_DECISIONS, _CUTS):
        _hold(laws, resolved, bag)
        if len(bag):
            return None
    return resolved


def check_names(spec: Spec, model: Model, bag: Bag) -> None:
    """What a spec speaks of is there, in the model and on the mesh, however many ranks there are."""
    check_order(spec, bag)
    _check_names(spec, model, bag)
    _check_axes(spec, bag)


def _hold(laws: Iterable[Law], resolved: Resolved, bag: Bag) -> None:
    """Every law, on one layer of each kind; on all of them only to say where a law does not hold."""
    broken = Bag()
    for law in laws:
        law(resolved.folded, broken)
    for law in laws if len(broken) else ():
        law(resolved, bag)


def _run_sizes(spec: Spec) -> RunSizes:
    def value(written: Written[int] | None) -> int | None:
        return None if written is None else written.value

    if spec.sizes is None:
        return RunSizes()
    accumulation = value(spec.sizes.accumulation) or 1
    return RunSizes(batch=value(spec.sizes.batch), seq=value(spec.sizes.seq), accumulation=accumulation)


def _precision(spec: Spec) -> Precision:
    words = {"state": spec.precision.state, "compute": spec.precision.compute, "reduce": spec.precision.reduce}
    said = {key: word.value for key, word in words.items() if word is not None}
    return Precision(**said, written=tuple(said))


# Laws of names


def _check_names(spec: Spec, model: Model, bag: Bag) -> None:
    """Each line speaks of a dimension that the model has, each pattern of something that it has."""
    for rule in spec.rules:
        if rule.name not in model.names and not rule.preset:
            bag.add(findings.unknown_dimension(rule.name, rule.key, model))
    for word in spec.uneven:
        if word.value not in model.names:
            bag.add(findings.unknown_dimension(word.value, word.key, model))
    for pattern, span, what, known in _patterns(spec, model):
        named = [fqn for fqn in known if pattern.covers(fqn)]
        if not named:
            bag.add(findings.no_match(pattern, span, what, known))
            continue
        idle = [each for each in pattern.alternatives() if not any(each.covers(fqn) for fqn in named)]
        for each in {template(each.text): each for each in reversed(idle)}.values():
            bag.add(findings.idle_alternative(each, span, what, known))


def _patterns(spec: Spec, model: Model) -> Iterator[tuple[Pattern, Span, str, tuple[str, ...]]]:
    """(pattern, its place, what it is about, all of these that there are)."""
    seen: set[tuple[str, str]] = set()
    for rule in spec.rules:
        if rule.pattern is not None and not rule.preset and (rule.level, rule.pattern.text) not in seen:
            seen.add((rule.level, rule.pattern.text))
            yield rule.pattern, rule.pattern_span or rule.key, "module", model.modules
    tensors = tuple(name for tensor in model.tensors for name in (tensor.fqn, *tensor.tied))
    for check in spec.checks:
        yield check.tensor, check.tensor_span or check.span, "tensor", tensors
    if spec.recompute is not None:
        modules = tuple(module for module in model.by_module if module)
        for pattern, span in zip(spec.recompute.modules, spec.recompute.pattern_spans, strict=True):
            yield pattern, span, "module", modules
    if spec.store is not None:
        parameters = tuple(n for t in model.tensors if t.kind == "parameter" for n in (t.fqn, *t.tied))
        for pattern, span in zip(spec.store.exceptions, spec.store.exception_spans, strict=True):
            yield pattern, span, "parameter", parameters


def _check_axes(spec: Spec, bag: Bag) -> None:
    """Each axis that is spoken of is an axis of the mesh."""
    names = [entry.name for entry in spec.mesh]
    words: list[Written[str]] = [axis for rule in spec.rules for axis in rule.axes]
    words += spec.store.over if spec.store is not None else ()
    words += spec.topology.inside_node
    words += [
        Written(value=axis, span=word.key, key=word.key) for check in spec.checks for axis, word in check.expect.items()
    ]
    strategies = [written_axis(table, axis) for table in spec.strategies for axis in strategy_axes(table.plugin)]
    meant = {mesh_findings.meant_axis(entry, spec) for entry in spec.mesh if _unknown(entry, spec)}
    for word in [*words, *strategies]:
        if word.value not in names and word.value not in meant:  # a misspelt axis is told once, at [mesh]
            bag.add(mesh_findings.unknown_axis(word, names))
    taken: dict[str, Written[str]] = {}
    for word in strategies:
        if taken.setdefault(word.value, word) is not word:
            bag.add(mesh_findings.two_strategies(taken[word.value], word))
    if spec.pipeline is not None and "pp" not in names:
        bag.add(mesh_findings.no_stages(spec.pipeline.span, names))


def _unknown(entry: AxisEntry, spec: Spec) -> bool:
    return spec.topology.order is None and entry.name not in KNOWN_AXES


# Laws of decisions


def _dims(resolved: Resolved) -> Iterator[tuple[str, Factors]]:
    """(fqn, factors) for every dim of every tensor and boundary."""
    for tensor in resolved.model.tensors:
        yield from ((tensor.fqn, factors) for factors in tensor.dims)
    for boundary in resolved.model.boundaries:
        yield from ((boundary.module, factors) for _, dims in boundary.ports() for factors in dims)


def _asked(resolved: Resolved) -> Iterator[tuple[str, str, bool]]:
    """(fqn, name, outermost) for every dimension of every tensor and boundary."""
    for fqn, factors in _dims(resolved):
        yield from ((fqn, name, name == factors[0]) for name in factors)


def _decided_once(resolved: Resolved, bag: Bag) -> None:
    """Two rules of one level that cover the same dimension agree."""
    found: dict[tuple[int, int], tuple[PlaceRule, PlaceRule, list[str]]] = {}
    for fqn, name, _ in dict.fromkeys(_asked(resolved)):
        first, *others = resolved.rules.candidates(fqn, name) or (None,)
        for other in others:
            if first is not None and _axes(other) != _axes(first):
                found.setdefault((id(first), id(other)), (first, other, []))[2].append(fqn)
    for first, other, fqns in found.values():
        bag.add(findings.conflict(first, other, fqns, resolved))


def _axes(rule: PlaceRule) -> tuple[str, ...]:
    return tuple(axis.value for axis in rule.axes)


def _everything_decided(resolved: Resolved, bag: Bag) -> None:
    """Every dimension that could be cut is decided by a rule or by the card."""
    silent: dict[str, list[str]] = {}
    for fqn, name, outermost in dict.fromkeys(_asked(resolved)):
        if outermost and not resolved.rules.candidates(fqn, name) and name not in resolved.rules.whole:
            silent.setdefault(name, []).append(fqn)
    if silent:
        bag.add(findings.undecided(silent, resolved))


def _nothing_idle(resolved: Resolved, bag: Bag) -> None:
    """Every rule decides something."""
    asked = dict.fromkeys((fqn, name) for fqn, name, _ in _asked(resolved))
    used = {id(rule) for fqn, name in asked for rule in resolved.rules.candidates(fqn, name)}
    for rule in resolved.spec.rules:
        if id(rule) in used or rule.preset:
            continue
        inside = [(fqn, name) for fqn, name in asked if rule.pattern is None or rule.pattern.covers(fqn)]
        stronger = next((resolved.rules.decide(fqn, name).rule for fqn, name in inside if name == rule.name), None)
        bag.add(findings.decides_nothing(rule, stronger, {name for _, name in inside}, resolved))


def _outer_factor(resolved: Resolved, bag: Bag) -> None:
    """Only the outermost factor of a dim is cut."""
    found: dict[int, tuple[PlaceRule, dict[Factors, list[str]]]] = {}
    for fqn, factors in _dims(resolved):
        for name in factors[1:]:
            rule = resolved.rules.decide(fqn, name).rule
            if rule is not None and rule.axes:
                found.setdefault(id(rule), (rule, {}))[1].setdefault(factors, []).append(fqn)
    for rule, dims in found.values():
        bag.add(findings.inner_factor(rule, dims, resolved))


def _placed_alike(resolved: Resolved, bag: Bag) -> None:
    """Names that count the same things are placed alike, wherever either of them is."""
    found: dict[tuple[str, str, PlaceRule | None, PlaceRule | None], list[str]] = {}
    for fqn, name in dict.fromkeys((fqn, name) for fqn, name, _ in _asked(resolved)):
        for one, other in resolved.model.same.items():
            a, b = resolved.rules.decide(fqn, one), resolved.rules.decide(fqn, other)
            if name in (one, other) and a.axes != b.axes:
                found.setdefault((one, other, a.rule, b.rule), []).append(fqn)
    for (one, other, a, b), fqns in found.items():
        bag.add(findings.placed_apart((one, other), (a, b), list(dict.fromkeys(fqns)), resolved))


# Laws of cuts


def _one_axis_once(resolved: Resolved, bag: Bag) -> None:
    """One axis cuts at most one dimension of what a module computes over."""
    clashes: dict[str, dict[frozenset[int], cut_findings.Clash]] = {}
    for fqn, names in _spaces(resolved):
        taken: dict[str, str] = {}
        for name in names:
            for axis in resolved.axes(fqn, name):
                other = taken.setdefault(axis, name)
                first, second = resolved.rules.decide(fqn, other).rule, resolved.rules.decide(fqn, name).rule
                if first and second and resolved.model.kin(other) != resolved.model.kin(name):
                    clash = cut_findings.Clash(rules=(first, second), fqns=[])
                    clashes.setdefault(axis, {}).setdefault(clash.key, clash).fqns.append(fqn)
    for axis, found in clashes.items():
        for finding in cut_findings.clashing(axis, list(found.values()), resolved):
            bag.add(finding)


def _spaces(resolved: Resolved) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each module without modules inside, with the names of all that it computes over; and each tensor."""
    model = resolved.model
    inner = set(model.scopes.values())
    for tensor in model.tensors:
        yield tensor.fqn, _ordered(tensor.dims)
    for boundary in model.boundaries:
        if boundary.module not in inner:
            dims = [d for _, port_dims in boundary.ports() for d in port_dims]
            dims += [d for tensor in model.held.get(boundary.module, ()) for d in tensor.dims]
            yield boundary.module, _ordered(dims)
        elif boundary.module:  # what enters and leaves the whole model is laid out as its first and last module say
            yield from ((boundary.module, _ordered(port_dims)) for _, port_dims in boundary.ports())


def _ordered(dims: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for factors in dims for name in factors))


def _even(resolved: Resolved, bag: Bag) -> None:
    """Each cut is in equal parts, unless the spec allows otherwise for that name."""
    allowed = {word.value for word in resolved.spec.uneven}
    sizes = {name: size for name, size in known_sizes(resolved).items() if name not in allowed}
    if sizes.get("batch", 0) % resolved.sizes.accumulation:
        bag.add(cut_findings.uneven_steps(resolved, sizes.pop("batch")))
    found: dict[int, tuple[PlaceRule, list[str]]] = {}
    for fqn, name, outermost in dict.fromkeys(_asked(resolved)):
        decision = resolved.rules.decide(fqn, name)
        if decision.rule is None or not outermost or name not in sizes or decision.rule.level == "strategy":
            continue
        parts = resolved.mesh.product(decision.axes) * (resolved.sizes.accumulation if name == "batch" else 1)
        if sizes[name] % parts:
            found.setdefault(id(decision.rule), (decision.rule, []))[1].append(fqn)
    for rule, fqns in found.values():
        bag.add(cut_findings.uneven_shard(rule.name, sizes[rule.name], rule, fqns, resolved))


def known_sizes(resolved: Resolved) -> Mapping[str, int]:
    """Sizes of the flavor, and those of the run that the spec gives."""
    run = {"batch": resolved.sizes.batch, "seq": resolved.sizes.seq}
    return {**resolved.model.sizes, **{name: size for name, size in run.items() if size is not None}}


def _axes_used(resolved: Resolved, bag: Bag) -> None:
    """Each axis of size > 1 cuts something, stores something, or is a strategy's or the pipeline's."""
    spec = resolved.spec
    used = {axis for fqn, name, _ in _asked(resolved) for axis in resolved.axes(fqn, name)}
    used |= {axis for use in spec.strategies for axis in strategy_axes(use.plugin)}
    used |= {"pp"} if spec.pipeline is not None else set()
    stored = {word.value for word in spec.store.over} if spec.store is not None else set()
    for entry in spec.mesh:
        if resolved.mesh.size(entry.name) == 1 or entry.name in used:
            continue
        if entry.name in stored:
            bag.add(mesh_findings.store_without_data(entry, resolved))
        else:
            bag.add(mesh_findings.unused_axis(entry, resolved))


Law = Callable[[Resolved, Bag], None]

_DECISIONS: tuple[Law, ...] = (
    _decided_once,
    _everything_decided,
    _nothing_idle,
    allowances_used,
    exceptions_used,
    recomputing_used,
    _outer_factor,
    _placed_alike,
)
_CUTS: tuple[Law, ...] = (_one_axis_once, _even, _axes_used)
