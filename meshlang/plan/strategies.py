"""What a strategy's table says before the strategy itself is asked: its axis, and what it cuts over that."""

from __future__ import annotations

from collections.abc import Iterator

from ..card.model import Model
from ..language.spec import PlaceRule, PluginTable, Spec, Written


def strategy_axes(plugin: object) -> tuple[str, ...]:
    """Axes that a strategy runs over: its field `axis`, when it has one."""
    axis = getattr(plugin, "axis", None)
    return (axis,) if isinstance(axis, str) else ()


def written_axis(table: PluginTable, axis: str) -> Written[str]:
    """The axis of a strategy, at the key that says it or at the strategy's name."""
    return table.fields.get("axis") or Written(value=axis, span=table.name.span, key=table.name.key)


def strategy_rules(spec: Spec, model: Model) -> Iterator[PlaceRule]:
    """What strategies cut over their axes by themselves, of what the model has."""
    for table in spec.strategies:
        for axis in strategy_axes(table.plugin):
            word = written_axis(table, axis)
            for name in getattr(type(table.plugin), "places", ()):
                if name in model.names:
                    yield PlaceRule(
                        level="strategy", pattern=None, name=name, axes=(word,), span=word.span, key=word.key
                    )
