"""A plan on any `nn.Module`: strategies' own computation, parameters as DTensors, redistributes at boundaries, FSDP.

The module knows nothing of it. It is called on each rank with that rank's part of the inputs,
as plain tensors; its loss and gradients are those of one process. Nothing communicates that
the plan does not print.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.placement_types import Placement

from ..plan.ir import Plan
from .boundary import Boundary, boundary
from .errors import LoweringError
from .fit import argument, by_place, fit
from .layout import grad_placements, placements
from .mesh import active, compute_axes, compute_mesh, replica_axes, storage_mesh
from .ops import install
from .store import plain_sums, shard_units
from .values import everywhere, nowhere, result


def lower(plan: Plan, model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """The model, placed as the plan says over a mesh of `device_mesh`; changed in place.

    Args:
        model: on the meta device, or with the same values on every rank.

    Raises:
        LoweringError: the plan and the model do not fit, or DTensor has no word for a layout.
    """
    fit(plan, model)
    sayable(plan)
    install(plan, model, lambda axis: mesh[axis] if plan.mesh.size(axis) > 1 else None)
    distribute(plan, model, mesh)
    for fqn, module in model.named_modules():
        ports = {edge.port: boundary(plan, edge, mesh) for edge in plan.edges if edge.module == fqn}
        inputs = {name: ports[f"input.{name}"] for name in _inputs(plan, fqn)}
        if inputs or holds(module):
            tensor_mesh = compute_mesh(plan, mesh) if fqn else None
            hook_inputs(module, inputs, local=is_local(module), mesh=tensor_mesh)
        if "output" in ports:
            hook_output(module, ports["output"])
    if replica_axes(plan):
        store(plan, model, mesh)
    else:
        sum_by_hooks(plan, model)
    return model


def sayable(plan: Plan) -> None:
    """Nothing, when DTensor and FSDP have a word for all of the plan.

    Raises:
        LoweringError: with everything that they have not.
    """
    order = plan.mesh.names
    problems = [
        f"{edge.module} {edge.port}: the axes {cuts} cut one dim in another order than the mesh's"
        for edge in plan.edges
        for layout in (edge.src, edge.dst)
        for cuts in layout.dims
        if list(live := active(plan, cuts)) != [axis for axis in cuts if axis in live]
    ]
    problems += [f"axis {axis} is for pipelines" for axis in active(plan, plan.axes_of("pipeline"))]
    for tensor in plan.tensors:
        cut = [active(plan, dim.axes) for dim in tensor.dims]
        uneven = any(dim.units % plan.mesh.product(axes) for dim, axes in zip(tensor.dims, cut, strict=True))
        if uneven:
            problems.append(f"tensor {tensor.fqn}: a cut is not even")
    if plan.precision.compute != plan.precision.state and not replica_axes(plan):
        problems.append(f"computing in {plan.precision.compute} needs FSDP, and no axis of {order} carries data")
    if problems:
        raise LoweringError(problems)


def distribute(plan: Plan, model: nn.Module, mesh: DeviceMesh) -> None:
    """Parameters and buffers as DTensors over the tensor axes, each rank cutting its own part."""
    tensor_mesh = compute_mesh(plan, mesh)
    if tensor_mesh is None:
        return
    axes = compute_axes(plan)
    done: dict[nn.Parameter, nn.Parameter] = {}
    for fqn, module in model.named_modules():
        prefix = f"{fqn}." if fqn else ""
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter not in done:
                kept = placements(plan.by_fqn[f"{prefix}{name}"].layout, axes)
                part = distribute_tensor(parameter.detach(), tensor_mesh, kept, src_data_rank=None)
                done[parameter] = nn.Parameter(part, requires_grad=parameter.requires_grad)
            module.register_parameter(name, done[parameter])
        for name, buffer in list(module.named_buffers(recurse=False)):
            kept = placements(plan.by_fqn[f"{prefix}{name}"].layout, axes)
            part = distribute_tensor(buffer, tensor_mesh, kept, src_data_rank=None)
            module.register_buffer(name, part, persistent=name not in module._non_persistent_buffers_set)


def _inputs(plan: Plan, fqn: str) -> list[str]:
    return [argument(edge) for edge in plan.edges if edge.module == fqn and edge.port != "output"]


def is_local(module: nn.Module) -> bool:
    """Whether the plan alone says what the module computes: it holds nothing that DTensor could follow."""
    return not any(True for _ in module.children()) and not holds(module)


def holds(module: nn.Module) -> bool:
    """Whether a module holds a parameter or buffer itself, and so computes with DTensors."""
    states = (*module.parameters(recurse=False), *module.buffers(recurse=False))
    return len(states) > 0


def hook_inputs(
    module: nn.Module, ports: Mapping[str, Boundary], *, local: bool = False, mesh: DeviceMesh | None = None
) -> None:
    """Before the module runs, each planned argument is checked and moved.

    Args:
        local: give the module its plain part of the value, not a DTensor.
        mesh: of the tensor axes, where other arguments are whole: masks, positions.
    """
    names = by_place(module)
    label = type(module).__name__

    def moved(name: str, value: Any) -> Any:
        if name in ports and isinstance(value, torch.Tensor):
            value = ports[name].move(ports[name].enter(value))
            return ports[name].local(value) if local else value
        where = f"argument {name} of {label}"
        if local:
            return nowhere(value, where)
        return value if mesh is None else everywhere(value, mesh, where)

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        places = (*names, *(str(place) for place in range(len(names), len(args))))
        absent = ports.keys() - {*places[: len(args)], *kwargs}
        if absent:
            raise LoweringError([f"{ports[name].where} is in the plan, and is not given" for name in sorted(absent)])
        given = tuple(moved(name, value) for name, value in zip(places, args, strict=False))
        return given, {name: moved(name, value) for name, value in kwargs.items()}

    module.register_forward_pre_hook(before, with_kwargs=True)


def hook_output(module: nn.Module, port: Boundary) -> None:
    """After the module has run, its output is checked and moved: the first tensor of a tuple or a mapping."""

    def after(_: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        tensor, put = result(output, port.where)
        return put(port.move(port.enter(tensor)))

    module.register_forward_hook(after)


def store(plan: Plan, model: nn.Module, mesh: DeviceMesh) -> None:
    """FSDP over the data and context axes, and the plan's element types.

    Raises:
        LoweringError: tensors of the plan are stored over different axes.
    """
    kinds = {active(plan, tensor.stored) for tensor in plan.tensors if tensor.kind == "parameter"}
    if len(kinds) > 1:
        raise LoweringError([f"tensors are stored over different axes: {sorted(kinds)}"])
    stored = kinds.pop()
    copies = tuple(axis for axis in replica_axes(plan) if axis not in stored)
    policy = MixedPrecisionPolicy(
        param_dtype=getattr(torch, plan.precision.compute),
        reduce_dtype=getattr(torch, plan.precision.reduce),
        cast_forward_inputs=False,
    )
    shard_units(plan, model, {"mesh": storage_mesh(mesh, copies, stored), "mp_policy": policy})
    if mesh.device_type == "cpu":
        plain_sums(model)


def sum_by_hooks(plan: Plan, model: nn.Module) -> None:
    """Without FSDP, the gradient of a parameter is summed where the ranks' terms of it differ."""
    axes = compute_axes(plan)
    for name, parameter in model.named_parameters():
        if isinstance(parameter, DTensor) and parameter.requires_grad:
            planned = grad_placements(plan.by_fqn[name].layout, axes)
            parameter.register_post_accumulate_grad_hook(_summed(name, planned, tuple(parameter.placements)))


def _summed(name: str, planned: tuple[Placement, ...], wanted: tuple[Placement, ...]) -> Callable[[torch.Tensor], None]:
    def after(parameter: torch.Tensor) -> None:
        grad = parameter.grad
        assert isinstance(grad, DTensor)
        if any(a.is_partial() != b.is_partial() for a, b in zip(grad.placements, planned, strict=True)):
            raise LoweringError([f"the gradient of {name} comes as {grad.placements}, in the plan as {planned}"])
        parameter.grad = grad.redistribute(placements=wanted)

    return after
