"""All ranks in one process, with real values: what a collective gives is what it would give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from ..mesh import Mesh
from .fake import fake_device_mesh, fake_group
from .seams import parts, seam


@dataclass(frozen=True, kw_only=True)
class LocalRanks:
    """Ranks 0 to `ranks` - 1, each operation done for all of them in turn."""

    ranks: int
    mode: Any

    def mesh(self, mesh: Mesh) -> DeviceMesh:
        """A DeviceMesh of all ranks, under the mesh's axis names.

        Raises:
            ValueError: it has other ranks.
        """
        if mesh.ranks != self.ranks:
            raise ValueError(f"the mesh has {mesh.ranks} ranks, and {self.ranks} are here")
        return fake_device_mesh(mesh)

    def tensor(self, make: Callable[[int], torch.Tensor]) -> torch.Tensor:
        """One tensor that is make(rank) on each rank; parts(tensor(make)) == tuple(map(make, ranks))."""
        with self.mode.disable():
            made = {rank: make(rank) for rank in range(self.ranks)}
        return seam("LocalTensor")(made)

    def parts(self, tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What each rank holds, in rank order: its local part of a DTensor.

        A plain tensor, which knows nothing of ranks, is the same on all of them.
        """
        local: Any = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        if isinstance(local, seam("AsyncCollectiveTensor")):
            local = local.wait()
        if not isinstance(local, seam("LocalTensor")):
            return (local,) * self.ranks
        held = parts(local)
        return tuple(held[rank] for rank in range(self.ranks))


@contextmanager
def local_ranks(ranks: int) -> Iterator[LocalRanks]:
    """Inside, this process is every rank of a run at once; tensors hold a value for each.

    DTensor, functional collectives and those of torch.distributed work; FSDP does not.

    Raises:
        RuntimeError: a process group exists already, such as that of a fake mesh.
        ValueError: there is no rank.
    """
    if ranks < 1:
        raise ValueError(f"{ranks} ranks are none")
    mode = seam("LocalTensorMode")(ranks)
    with fake_group(ranks), mode:
        yield LocalRanks(ranks=ranks, mode=mode)
