"""Where cards are: beside the model that they describe, or at a path that a spec names."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class Cards:
    """Card name -> file.

    A distribution brings a card by an entry point of the group `meshlang.cards` whose value is the
    package that holds `card.toml`. The package is found, never imported: cards are read without torch.
    """

    extra: dict[str, Path] = field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        """Every installed card, sorted."""
        return tuple(sorted({*self.extra, *(point.name for point in entry_points(group="meshlang.cards"))}))

    def path(self, name: str) -> Path | None:
        """The file of an installed card, or None."""
        if name in self.extra:
            return self.extra[name]
        for point in entry_points(group="meshlang.cards"):
            if point.name == name:
                return _card_file(point.value)
        return None


def _card_file(package: str) -> Path | None:
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(next(iter(spec.submodule_search_locations))) / "card.toml"
    return path if path.exists() else None
