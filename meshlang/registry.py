"""Entry points -> plugins. Nothing is registered at import; an installed distribution is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

Group = Literal["meshlang.strategies", "meshlang.schedules"]


class PluginError(Exception):
    """A plugin that cannot be used: a name claimed twice, or a class that does not load."""


@dataclass(frozen=True)
class Registry:
    """Names -> plugin classes of one group, loaded when asked for.

    Args:
        group: entry-point group.
        extra: classes given by hand, for tests.
    """

    group: Group
    extra: Mapping[str, type[Any]] = field(default_factory=dict)

    @cached_property
    def _points(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=self.group):
            if all(_claim(point) != _claim(other) for other in found.get(point.name, [])):
                found.setdefault(point.name, []).append(point)
        return found

    def names(self) -> tuple[str, ...]:
        """Every installed name, sorted."""
        return tuple(sorted({*self._points, *self.extra}))

    def distribution(self, name: str) -> str:
        """The distribution that brings `name`."""
        if name in self.extra:
            return "(given)"
        return _claim(self._points[name][0])[0]

    def load(self, name: str) -> type[Any]:
        """The class behind a name of `names()`.

        Raises:
            PluginError: two distributions claim it, or its module does not import.
        """
        if name in self.extra:
            return self.extra[name]
        points = self._points[name]
        if len(points) > 1:
            claims = " and ".join(f"{dist} ({value})" for dist, value in map(_claim, points))
            raise PluginError(f"`{name}` is claimed by {claims}")
        try:
            return points[0].load()
        except Exception as error:
            raise PluginError(f"`{name}` ({points[0].value}) does not load: {type(error).__name__}: {error}") from error


def _claim(point: EntryPoint) -> tuple[str, str]:
    return (point.dist.name if point.dist is not None else "?", point.value)


@dataclass(frozen=True, kw_only=True)
class Plugins:
    """Both groups."""

    strategies: Registry = Registry("meshlang.strategies")
    schedules: Registry = Registry("meshlang.schedules")
