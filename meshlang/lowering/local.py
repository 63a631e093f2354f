"""Which part of a full tensor a rank holds."""

from __future__ import annotations

import torch
from torch.distributed.tensor import DTensor, Shard


def local_part(full: torch.Tensor, like: DTensor) -> torch.Tensor:
    """What this rank holds of `full` when it is laid out as `like`.

    FSDP cuts dim 0 again inside the cut of a later mesh axis and calls that placement a
    strided shard: those are cut last. Parts are torch.chunk's, the last ones shorter or empty.
    """
    mesh, placements = like.device_mesh, like.placements
    coordinate = mesh.get_coordinate()
    assert coordinate is not None
    order = sorted(range(len(placements)), key=lambda index: is_strided(placements[index]))
    for index in order:
        placement = placements[index]
        if isinstance(placement, Shard) or is_strided(placement):
            full = _part(full, placement.dim, mesh.size(index), coordinate[index])  # pyright: ignore[reportAttributeAccessIssue]
    return full


def is_strided(placement: object) -> bool:
    """Whether a placement cuts a dim inside the cut of a later mesh axis."""
    return type(placement).__name__ == "_StridedShard"


def _part(full: torch.Tensor, dim: int, parts: int, index: int) -> torch.Tensor:
    length = full.size(dim)
    step = -(-length // parts)
    start = min(length, step * index)
    return full.narrow(dim, start, min(length, start + step) - start)
