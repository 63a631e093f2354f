"""State at rest, in bytes: parameters, gradients and the optimizer's two moments. Exact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..language.spec import DTYPE_BYTES
from .ir import Plan, StateBytes, Tensor, numel


def state_bytes(plan: Plan) -> StateBytes:
    """Parameters, gradients and AdamW's two moments at rest, on the fullest rank.

    It has coordinate 0 on every axis but a pipeline's, whose ranks hold different stages.
    """
    return max((state_at(plan, each) for each in _candidates(plan)), key=lambda state: state.total)


def state_at(plan: Plan, coordinate: dict[str, int]) -> StateBytes:
    """The same of the rank at a coordinate. Of two replicas only the first has moments."""
    width = DTYPE_BYTES[plan.precision.state]
    elements, stepped = _parameters(plan, coordinate), _stepped(plan, coordinate)
    return StateBytes(parameters=elements * width, gradients=elements * width, optimizer=2 * stepped * width)


def _candidates(plan: Plan) -> Iterator[dict[str, int]]:
    """The first rank of each place in the pipeline."""
    origin = dict.fromkeys(plan.mesh.names, 0)
    places = {place for stage in plan.stages for place in stage.coordinates} or {0}
    yield from ({**origin, **dict.fromkeys(plan.axes_of("pipeline"), place)} for place in sorted(places))


def _parameters(plan: Plan, coordinate: dict[str, int]) -> int:
    """Elements of parameters that the rank at a coordinate keeps."""
    held = (t for t in plan.tensors if t.kind == "parameter" and plan.holds(t, coordinate))
    return sum(numel(tensor.local_shape(plan.mesh, coordinate)) for tensor in held)


def _stepped(plan: Plan, coordinate: dict[str, int]) -> int:
    """Elements of parameters that the optimizer of the rank at a coordinate steps."""
    first = replace(plan, stages=tuple(replace(stage, mirror=None) for stage in plan.stages))
    return _parameters(first, coordinate)


def padded(plan: Plan, tensor: Tensor) -> int:
    """Elements of a tensor in its unit's buffer: dim 0 is padded to a multiple of the parts at rest."""
    parts = plan.mesh.product(tensor.stored)
    rows, *rest = tensor.compute_shape(plan.mesh, dict.fromkeys(plan.mesh.names, 0)) or (1,)
    return -(-rows // parts) * parts * numel(tuple(rest))
