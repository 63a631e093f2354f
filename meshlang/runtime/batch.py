"""From a whole batch to one rank's: what its strategies prepare, and tokens cut over a context axis.

torchtitan's Trainer does the same for its own context parallelism, by torch's masks. They ask
for sequences of a multiple of 128 tokens a rank, and always cut the mask's rows: a plan whose
attention sees all tokens, or streams them, needs the whole mask.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.attention.flex_attention import BlockMask
from torchtitan.distributed import ParallelDims

from ..lowering.ops import MeshOf, ops_of
from ..lowering.sequence import cut_rows, cut_tokens
from ..plan.ir import Edge, Plan
from ..plan.launchable import parts

#: Tokens of a rank that torch's context-parallel masks are made of.
TORCH_BLOCK = 128

#: "input", "labels", "positions", "attention_masks" and what else the data loader gives, by name.
Batch = dict[str, Any]


def needs_own_batch(plan: Plan, seq: int) -> bool:
    """Whether a plan asks for another batch than torchtitan's Trainer makes of `seq` tokens a sequence."""
    if any(hasattr(ops, "prepare_batch") for _, ops in ops_of(plan)):
        return True
    return any(not cuts_rows(plan, axis) or seq % (plan.mesh.size(axis) * TORCH_BLOCK) for axis in parts(plan)["cp"])


def makes_masks(plan: Plan) -> bool:
    """Whether a strategy makes the batch's masks itself: those of whole sequences may be too large to make."""
    return any(getattr(ops, "MAKES_MASKS", False) for _, ops in ops_of(plan))


def cuts_rows(plan: Plan, axis: str) -> bool:
    """Whether each rank's queries meet the keys of all ranks: then it needs its own rows of the mask."""
    whole = {edge.module for edge in plan.edges if "seq" in edge.whole and not _cut(edge, axis)}
    return any(_cut(edge, axis) for edge in plan.edges if edge.module in whole and edge.port != "output")


def _cut(edge: Edge, axis: str) -> bool:
    """Whether the axis cuts the sequence inside the module."""
    pairs = zip(edge.names, edge.dst.dims, strict=True)
    return any(names[0] == "seq" and axis in axes for names, axes in pairs)


def balance(plan: Plan, axis: str) -> str:
    """Which tokens each rank of an axis has, as its strategy says; see `lowering.sequence`."""
    found = [dict(use.options).get("balance", "none") for use in plan.strategies if use.axis == axis]
    return str(found[0]) if found else "none"


def prepare(plan: Plan, batch: Batch, mesh_of: MeshOf) -> Batch:
    """One rank's batch, of the whole sequences that are its share of the data.

    A strategy that prepares the batch has the axis to itself; every other context axis cuts the
    tokens in torchtitan's way.
    """
    done = set()
    for use, ops in ops_of(plan):
        if hasattr(ops, "prepare_batch"):
            batch = ops.prepare_batch(plan, use, batch, mesh_of(use.axis))
            done.add(use.axis)
    for axis in parts(plan)["cp"]:
        mesh = mesh_of(axis)
        if axis not in done and mesh is not None:
            batch = cut(plan, batch, axis, mesh)
    return batch


def cut(plan: Plan, batch: Batch, axis: str, mesh: DeviceMesh) -> Batch:
    """The tokens of one rank of an axis; of masks its rows, where its queries are only its own."""
    index, size, word = mesh.get_local_rank(), mesh.size(), balance(plan, axis)
    rows = cuts_rows(plan, axis)
    tensors = {k: cut_tokens(v, index, size, word) for k, v in batch.items() if isinstance(v, torch.Tensor)}
    masks = {k: _rows(v, index, size, word) for k, v in batch.items() if rows and _is_mask(v)}
    return batch | tensors | masks


def _is_mask(value: object) -> bool:
    return isinstance(value, BlockMask) or (isinstance(value, Mapping) and all(map(_is_mask, value.values())))


def _rows(mask: Any, index: int, size: int, word: str) -> Any:
    """The rows of a mask, or of each mask of several by name."""
    if isinstance(mask, BlockMask):
        return cut_rows(mask, index, size, word)
    return {name: cut_rows(each, index, size, word) for name, each in mask.items()}


def meshes(plan: Plan, parallel_dims: ParallelDims) -> MeshOf:
    """torchtitan's one-dimensional meshes by the plan's axes; None for those of one rank."""
    carried = {axis: name for name, axes in parts(plan).items() for axis in axes}

    def mesh_of(axis: str) -> DeviceMesh | None:
        return parallel_dims.get_mesh(carried[axis]) if axis in carried else None

    return mesh_of
