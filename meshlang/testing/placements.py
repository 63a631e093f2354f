"""What a plan says of its tensors, asserted; and real modules held against a plan.

Each assertion lists every mismatch, not the first one only. Nothing here loads torch but
`assert_follows_plan`, which is given a module of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from ..language.pattern import Pattern
from ..mesh import Mesh
from ..plan.ir import Dim, Plan, Tensor, chunk
from ..plan.promises import said

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

_WORD = re.compile(r"R|S\([0-9]+\)|stored")


def assert_placements(plan: Plan, expected: Mapping[str, Mapping[str, str]]) -> None:
    """Every tensor that a pattern names is placed as said.

    Args:
        plan: any plan; no torch is needed.
        expected: pattern -> axis -> "R", "S(i)", or "stored" for a cut at rest only.

    Raises:
        AssertionError: with every tensor that is placed otherwise, every pattern that names none.
        ValueError: another word, or an axis that the mesh lacks.
    """
    _fail(line for pattern, wanted in expected.items() for line in _misplaced(plan, pattern, wanted))


def _misplaced(plan: Plan, text: str, wanted: Mapping[str, str]) -> Iterator[str]:
    pattern = Pattern.parse(text)
    tensors = [t for t in plan.tensors if any(pattern.covers(name) for name in (t.fqn, *t.tied))]
    if not tensors:
        yield f"{text}: names no tensor"
    for axis, word in wanted.items():
        _known(plan.mesh, axis, word)
        for tensor in tensors:
            found = said(tensor, axis)
            if found != _meant(word):
                yield f"{tensor.fqn}: {found} on `{axis}`, not {word}"


def _known(mesh: Mesh, axis: str, word: str) -> None:
    if axis not in mesh.names:
        raise ValueError(f"`{axis}` is no axis of the mesh; it has {', '.join(mesh.names) or 'none'}")
    if _WORD.fullmatch(word) is None:
        raise ValueError(f'"{word}" is no placement; "R", "S(i)" and "stored" are')


def _meant(word: str) -> str:
    return "stored S(0)" if word == "stored" else word


def assert_local_shapes(plan: Plan, expected: Mapping[str, Sequence[int]], *, rank: int = 0) -> None:
    """Each tensor has, at rest on one rank, the shape given.

    Args:
        plan: any plan; no torch is needed.
        expected: fqn -> shape.
        rank: of the whole mesh.

    Raises:
        AssertionError: with every tensor of another shape, every fqn that the plan lacks.
    """
    _fail(_misshapen(plan, expected, rank))


def _misshapen(plan: Plan, expected: Mapping[str, Sequence[int]], rank: int) -> Iterator[str]:
    coordinate = plan.mesh.coordinate(rank)
    for fqn, shape in expected.items():
        tensor = plan.by_fqn.get(fqn)
        if tensor is None:
            yield f"{fqn}: is no tensor of the plan"
            continue
        found = tensor.local_shape(plan.mesh, coordinate)
        if found != tuple(shape):
            yield f"{fqn}: {found} on rank {rank}, not {tuple(shape)}"


def _fail(lines: Iterable[str]) -> None:
    found = list(lines)
    if found:
        raise AssertionError("\n".join(found))


def part(tensor: Tensor, mesh: Mesh, coordinate: dict[str, int]) -> tuple[tuple[int, int], ...]:
    """(start, length) of each dim of what a rank keeps at rest, in the whole tensor."""
    bounds = [_bounds(dim, mesh, coordinate) for dim in tensor.dims]
    if tensor.stored:
        start, length = bounds[0]
        first, rest = _within(length, tensor.stored, mesh, coordinate)
        bounds[0] = (start + first, rest)
    return tuple(bounds)


def _bounds(dim: Dim, mesh: Mesh, coordinate: dict[str, int]) -> tuple[int, int]:
    first, units = 0, dim.units
    for axis in dim.axes:
        start, units = _within(units, (axis,), mesh, coordinate)
        first += start
    width = dim.size // dim.units
    return first * width, units * width


def _within(size: int, axes: Sequence[str], mesh: Mesh, coordinate: dict[str, int]) -> tuple[int, int]:
    """(start, length) of the part of `size` that a coordinate has, `axes` acting as one group."""
    index = 0
    for axis in axes:
        index = index * mesh.size(axis) + coordinate[axis]
    parts = mesh.product(axes)
    return min(size, -(-size // parts) * index), chunk(size, parts, index)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """What one dim of a device mesh does to a tensor.

    dim: of the tensor. split: the parts that later dims of the device mesh have cut it into
    before; 1 when this dim cuts first, as DTensor's own order has it.
    """

    dim: int
    split: int = 1


def cuts(tensor: Tensor, mesh: Mesh, groups: Sequence[tuple[str, ...]]) -> tuple[Cut | None, ...]:
    """For each dim of a device mesh the cut it makes; None where the tensor is whole.

    Args:
        tensor: of a plan; what is cut at rest is cut inside the computing cut.
        mesh: the plan's.
        groups: for each dim of the device mesh the plan's axes that span it.
    """
    order = [(*dim.axes, *(tensor.stored if index == 0 else ())) for index, dim in enumerate(tensor.dims)]
    return tuple(_cut(order, mesh, groups, position) for position in range(len(groups)))


def _cut(order: list[tuple[str, ...]], mesh: Mesh, groups: Sequence[tuple[str, ...]], position: int) -> Cut | None:
    for dim, axes in enumerate(order):
        mine = [axes.index(axis) for axis in groups[position] if axis in axes]
        if mine:
            later = {axis for group in groups[position + 1 :] for axis in group}
            outer = [axis for axis in axes[: min(mine)] if axis in later]
            return Cut(dim=dim, split=prod(mesh.size(axis) for axis in outer))
    return None


def assert_follows_plan(module: torch.nn.Module, plan: Plan, mesh: DeviceMesh) -> None:
    """Every parameter of a module is laid out on this rank as the plan says.

    The device mesh of a parameter may be any that the plan's ranks form: sub-meshes, and several
    axes flattened into one, are told apart by their ranks, not by their names. A parameter that
    is no DTensor is whole on every rank.

    Args:
        module: with the plan's names; it may be a part of the model.
        plan: what it was lowered from.
        mesh: the run's device mesh, under the plan's axis names.

    Raises:
        AssertionError: one line a mismatch: fqn, found, planned.
    """
    coordinate = {axis: mesh.get_local_rank(axis) for axis in plan.mesh.names}
    _fail(
        line
        for fqn, parameter in module.named_parameters()
        for line in _strayed(plain_name(fqn), parameter, plan, coordinate)
    )


def plain_name(fqn: str) -> str:
    """The fqn without what activation checkpointing and compilation wrap around modules."""
    return fqn.replace("_checkpoint_wrapped_module.", "").replace("_orig_mod.", "")


def _strayed(fqn: str, parameter: Any, plan: Plan, coordinate: dict[str, int]) -> Iterator[str]:
    tensor = plan.by_fqn.get(fqn)
    if tensor is None:
        yield f"{fqn}: found a parameter, planned none"
        return
    if tuple(parameter.shape) != tensor.shape:
        yield f"{fqn}: found shape {tuple(parameter.shape)}, planned {tensor.shape}"
    groups, found = _found(parameter, plan.mesh)
    lines = list(_unlike(fqn, tensor, plan, groups, found))
    yield from lines or _nested(fqn, cuts(tensor, plan.mesh, groups), groups, found)
    local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    planned = tensor.local_shape(plan.mesh, coordinate)
    if tuple(local.shape) != planned:
        yield f"{fqn}: found local shape {tuple(local.shape)}, planned {planned}"


_Found = Sequence[Cut | str]


def _found(parameter: Any, mesh: Mesh) -> tuple[tuple[tuple[str, ...], ...], _Found]:
    """The plan's axes that span each dim of a parameter's device mesh, and what each does."""
    if not hasattr(parameter, "device_mesh"):
        return (), ()
    device_mesh = parameter.device_mesh
    groups = tuple(_spanned(_ranks(device_mesh, position), mesh) for position in range(device_mesh.ndim))
    return groups, tuple(_read(placement) for placement in parameter.placements)


def _ranks(device_mesh: Any, position: int) -> list[int]:
    """This rank's group along one dim."""
    ranks, coordinate = device_mesh.mesh, device_mesh.get_coordinate()
    index = tuple(slice(None) if i == position else coordinate[i] for i in range(device_mesh.ndim))
    return ranks[index].tolist()


def _spanned(ranks: list[int], mesh: Mesh) -> tuple[str, ...]:
    """Axes along which these ranks differ, outermost first."""
    coordinates = [mesh.coordinate(rank) for rank in ranks]
    return tuple(axis for axis in mesh.names if len({coordinate[axis] for coordinate in coordinates}) > 1)


def _read(placement: Any) -> Cut | str:
    from .seams import split_factor

    if hasattr(placement, "dim"):
        return Cut(dim=placement.dim, split=split_factor(placement))
    return "R" if placement.is_replicate() else "P"


def _unlike(fqn: str, tensor: Tensor, plan: Plan, groups: Sequence[tuple[str, ...]], found: _Found) -> Iterator[str]:
    """Axes that do something else to the tensor than planned."""
    words = {axis: word for group, word in zip(groups, found, strict=True) for axis in group}
    for axis in plan.mesh.names:
        word = words.get(axis, "R")
        text = f"S({word.dim})" if isinstance(word, Cut) else word
        planned = said(tensor, axis)
        if plan.mesh.size(axis) > 1 and text != planned.removeprefix("stored "):
            yield f"{fqn}: found {text} on `{axis}`, planned {planned}"


def _nested(fqn: str, planned: Sequence[Cut | None], groups: Sequence[tuple[str, ...]], found: _Found) -> Iterator[str]:
    """Dims of the device mesh that cut what is planned, but not in the order that is planned."""
    for group, wanted, have in zip(groups, planned, found, strict=True):
        if group and wanted is not None and isinstance(have, Cut) and have != wanted:
            yield f"{fqn}: found `{'+'.join(group)}` {_place(have)} dim {have.dim}, planned {_place(wanted)} it"


def _place(cut: Cut) -> str:
    return "first to cut" if cut.split == 1 else f"inside {cut.split} parts of"
