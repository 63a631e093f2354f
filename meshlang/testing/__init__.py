"""Plans, strategies and modules under test: on a fake mesh, on local ranks, and without torch.

Nothing is loaded before it is asked for: pytest imports this package at every start, for the
plugin in it. Only `fake_mesh` and `local_ranks` load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .fake import FakeMesh, fake_mesh
    from .local import LocalRanks, local_ranks
    from .placements import assert_follows_plan, assert_local_shapes, assert_placements

__all__ = [
    "FakeMesh",
    "LocalRanks",
    "assert_follows_plan",
    "assert_local_shapes",
    "assert_placements",
    "fake_mesh",
    "local_ranks",
]

_MODULES = {
    "FakeMesh": "fake",
    "LocalRanks": "local",
    "assert_follows_plan": "placements",
    "assert_local_shapes": "placements",
    "assert_placements": "placements",
    "fake_mesh": "fake",
    "local_ranks": "local",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
