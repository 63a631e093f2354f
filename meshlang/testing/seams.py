"""Every private name of torch that fake meshes, local ranks and measures lean on, and nothing else.

When torch moves one of them, this is the one file to mend, and its test the one that says so.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: What we call it -> where torch 2.14 keeps it.
SEAMS = {
    "AsyncCollectiveTensor": "torch.distributed._functional_collectives:AsyncCollectiveTensor",
    "CheckpointWrapper": "torch.distributed.algorithms._checkpoint.checkpoint_wrapper:CheckpointWrapper",
    "FSDPParamGroup": "torch.distributed.fsdp._fully_shard._fsdp_param_group:FSDPParamGroup",
    "FakeStore": "torch.testing._internal.distributed.fake_pg:FakeStore",
    "LocalTensor": "torch.distributed._local_tensor:LocalTensor",
    "LocalTensorMode": "torch.distributed._local_tensor:LocalTensorMode",
    "StridedShard": "torch.distributed.tensor.placement_types:_StridedShard",
}


class SeamMovedError(ImportError):
    """Torch no longer has a private name where it was."""


def seam(name: str) -> Any:
    """The object behind a key of `SEAMS`.

    Raises:
        SeamMovedError: it is not there any more.
    """
    module, _, attribute = SEAMS[name].partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        import torch

        message = f"torch {torch.__version__} has no {module}.{attribute}: mend meshlang/testing/seams.py"
        raise SeamMovedError(message) from error


def parts(tensor: Any) -> dict[int, Any]:
    """Rank -> tensor of a LocalTensor; the attribute is private."""
    return tensor._local_tensors


def split_factor(placement: Any) -> int:
    """Parts that later dims of a device mesh cut before this placement does; 1 for a plain shard."""
    return placement.split_factor if isinstance(placement, seam("StridedShard")) else 1
