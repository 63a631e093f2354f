"""Laws of decisions: each dimension is decided, once; each rule decides something; each cut can be made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ..card.model import Factors
from ..diagnostics import Bag
from ..language.spec import PlaceRule
from . import cut_findings, findings, mesh_findings
from .idle import allowances_used, exceptions_used, recomputing_used, sizes_used
from .resolved import Resolved, known_sizes
from .strategies import strategy_axes


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

#: Of what rules say of each other.
DECISIONS: tuple[Law, ...] = (
    _decided_once,
    _everything_decided,
    _nothing_idle,
    allowances_used,
    exceptions_used,
    recomputing_used,
    sizes_used,
    _outer_factor,
    _placed_alike,
)

#: Of what they say of sizes and of the mesh.
CUTS: tuple[Law, ...] = (_one_axis_once, _even, _axes_used)
