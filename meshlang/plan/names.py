"""Laws of names: what a spec speaks of is there, in the model and on the mesh."""

from __future__ import annotations

from collections.abc import Iterator

from ..card.model import Model
from ..diagnostics import Bag
from ..fold import template
from ..language.pattern import Pattern
from ..language.spec import AxisEntry, Spec, Written
from ..mesh import KNOWN_AXES
from ..source import Span
from . import findings, mesh_findings
from .mesh import check_order
from .strategies import strategy_axes, written_axis


def check_names(spec: Spec, model: Model, bag: Bag) -> None:
    """What a spec speaks of is there, in the model and on the mesh, however many ranks there are."""
    check_order(spec, bag)
    names_known(spec, model, bag)
    axes_known(spec, bag)


def names_known(spec: Spec, model: Model, bag: Bag) -> None:
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


def axes_known(spec: Spec, bag: Bag) -> None:
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
