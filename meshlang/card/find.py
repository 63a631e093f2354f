"""Where cards are: beside the model that they describe, or at a path that a spec names."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from ..source import Source
from .model import Model


@dataclass(frozen=True)
class Cards:
    """Card name -> file, and the models that were read from them.

    A distribution brings a card by an entry point of the group `meshlang.cards` whose value is the
    package that holds `card.toml`. The package is found, never imported: cards are read without torch.
    """

    extra: dict[str, Path] = field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        """Every installed card, sorted."""
        return tuple(sorted({*self.extra, *self._packages}))

    def path(self, name: str) -> Path | None:
        """The file of an installed card, or None."""
        if name in self.extra:
            return self.extra[name]
        package = self._packages.get(name)
        return _card_file(package) if package is not None else None

    @cached_property
    def _packages(self) -> dict[str, str]:
        """Card name -> package; asked once, since every installed distribution is looked at."""
        found: dict[str, str] = {}
        for point in entry_points(group="meshlang.cards"):
            found.setdefault(point.name, point.value)
        return found

    @cached_property
    def models(self) -> dict[tuple[Source, str], Model]:
        """(text of a card, flavor) -> the model; a spec that is checked again and again reads its card once."""
        return {}


def _card_file(package: str) -> Path | None:
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(next(iter(spec.submodule_search_locations))) / "card.toml"
    return path if path.exists() else None
