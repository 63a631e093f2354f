"""What parity to the last digits needs: float64 all the way, and weights that no mesh changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from zlib import crc32

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from ..lowering.local import local_part


@contextmanager
def keep_float64() -> Iterator[None]:
    """`Tensor.float()` leaves float64 as it is, and torchtitan's configs may name float64.

    torchtitan computes its loss and rotary positions in float32 by `.float()`, which means
    "at least float32" everywhere it is written. Inside this context that is what it does.
    """
    from torchtitan.config import TORCH_DTYPE_MAP

    before = torch.Tensor.float
    setattr(torch.Tensor, "float", _at_least_float32)  # noqa: B010
    TORCH_DTYPE_MAP["float64"] = torch.float64
    try:
        yield
    finally:
        setattr(torch.Tensor, "float", before)  # noqa: B010
        del TORCH_DTYPE_MAP["float64"]


def _at_least_float32(
    tensor: torch.Tensor, *, memory_format: torch.memory_format = torch.preserve_format
) -> torch.Tensor:
    dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    return tensor.to(dtype, memory_format=memory_format)


@torch.no_grad()
def seeded_init(model: nn.Module) -> None:
    """Every parameter gets the values that its name and global shape give, on any mesh.

    The first name of a tied parameter counts. Vectors are near 1, as norm weights are;
    matrices are normal with a standard deviation of 1 / sqrt(columns).
    """
    for name, parameter in model.named_parameters():
        full = seeded_tensor(plain_name(name), tuple(parameter.shape))
        if isinstance(parameter, DTensor):
            parameter.to_local().copy_(local_part(full, parameter))
        else:
            parameter.copy_(full)


def seeded_tensor(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """The float64 values that a name and a shape give."""
    generator = torch.Generator().manual_seed(crc32(name.encode()))
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    if len(shape) < 2:
        return 1 + 0.1 * drawn
    return drawn / prod(shape[1:]) ** 0.5


def plain_name(name: str) -> str:
    """The name without what activation checkpointing and compilation wrap around a module."""
    return name.replace("_checkpoint_wrapped_module.", "").replace("_orig_mod.", "")
