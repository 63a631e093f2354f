"""What each axis of a mesh carries."""

from __future__ import annotations

from collections.abc import Mapping

from .ir import Role
from .resolved import Resolved


def roles(resolved: Resolved) -> list[tuple[str, Role]]:
    """Each axis with its role, in mesh order."""
    weights = cutting_weights(resolved)
    run: dict[str, set[str]] = {"batch": set(), "seq": set()}
    for boundary in resolved.model.boundaries:
        for _, dims in boundary.ports():
            for factors in dims:
                if factors[0] in run:
                    run[factors[0]].update(resolved.axes(boundary.module, factors[0]))
    return [(axis, _role(axis, resolved, weights, run)) for axis in resolved.mesh.names]


def cutting_weights(resolved: Resolved) -> frozenset[str]:
    """The axes that cut a weight while computing: over these, values inside a model know their whole size."""
    return frozenset(axis for t in resolved.model.tensors for f in t.dims for axis in resolved.axes(t.fqn, f[0]))


def _role(axis: str, resolved: Resolved, weights: frozenset[str], run: Mapping[str, set[str]]) -> Role:
    if axis in weights:
        return "tensor"
    if axis in run["batch"]:
        return "data"
    if axis in run["seq"]:
        return "context"
    if axis == "pp" and resolved.spec.pipeline is not None:
        return "pipeline"
    return "none"
