"""meshlang: say how a model is spread over machines, and have it checked before it runs.

The public names. Each is imported when it is first asked for: a command imports what it needs, and none of these
loads torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compiler import Request, check, compile, load
    from .diagnostics import Diagnostic, SpecError
    from .mesh import Mesh, MeshAxis
    from .placement import Layout, Partial, Replicate, Shard
    from .plan.ir import Plan
    from .source import Source

__all__ = [
    "Diagnostic",
    "Layout",
    "Mesh",
    "MeshAxis",
    "Partial",
    "Plan",
    "Replicate",
    "Request",
    "Shard",
    "Source",
    "SpecError",
    "check",
    "compile",
    "load",
]

_HOMES = {
    "compiler": ("Request", "check", "compile", "load"),
    "diagnostics": ("Diagnostic", "SpecError"),
    "mesh": ("Mesh", "MeshAxis"),
    "placement": ("Layout", "Partial", "Replicate", "Shard"),
    "plan.ir": ("Plan",),
    "source": ("Source",),
}


def __getattr__(name: str) -> Any:
    """A public name, from the module that has it."""
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{home}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
