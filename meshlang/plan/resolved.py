"""A spec whose names and sizes are known, and the rule that decides each dimension of each tensor.

Levels, weak to strong: card < strategies < `[place]` < `[within]` < `[at]`. The stronger level
decides, per dimension name; inside a level two rules that disagree are a finding, never an order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..card.model import Model
from ..language.spec import LEVELS, PlaceRule, Spec
from ..mesh import Mesh
from ..source import Span
from .alike import Alike, folded
from .ir import Origin, Precision, RunSizes


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


def known_sizes(resolved: Resolved) -> Mapping[str, int]:
    """Sizes of the flavor, and those of the run that the spec gives."""
    run = {"batch": resolved.sizes.batch, "seq": resolved.sizes.seq}
    return {**resolved.model.sizes, **{name: size for name, size in run.items() if size is not None}}
