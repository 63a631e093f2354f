"""Where meshlang leans on torchtitan beyond its public surface. No other file does so, but device.py.

`PRIVATE_NAMES` lists every private name used here; a test fails when one of them moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn
from torchtitan.distributed import pipeline_parallel
from torchtitan.models.common.embedding import Embedding
from torchtitan.protocols.module import Module
from torchtitan.protocols.sharding import ShardingConfig

PRIVATE_NAMES: tuple[tuple[str, str], ...] = (
    ("torchtitan.protocols.module.Module", "_sharding_config"),
    ("torchtitan.protocols.module.Module", "_parallelized"),
    ("torchtitan.distributed.pipeline_parallel", "_split_module"),
    ("torchtitan.protocols.module.Module", "_init_self_parameters"),
)
"""Every (class or module, attribute) that is read or set below."""


def set_sharding_config(module: nn.Module, config: ShardingConfig | None) -> None:
    """What `Module.parallelize` will do to this built module.

    torchtitan sets it from the module's own config when that is built; a plan comes later.
    """
    assert isinstance(module, Module), type(module)
    assert not module._parallelized, "a module is parallelized once"
    module._sharding_config = config


def sharding_config(module: Module) -> ShardingConfig | None:
    """What `Module.parallelize` will do, or has done, to this module."""
    return module._sharding_config


@contextmanager
def parameters_as_they_are() -> Iterator[None]:
    """`init_weights` makes buffers only: for parameters that get their values elsewhere."""
    before = Module._init_self_parameters
    setattr(Module, "_init_self_parameters", lambda self: None)  # noqa: B010
    try:
        yield
    finally:
        setattr(Module, "_init_self_parameters", before)  # noqa: B010


def whole_vocabulary(module: nn.Module) -> None:
    """The embedding looks up any token in the table it holds.

    torchtitan's embedding takes its table for a part of the vocabulary wherever there is a
    tensor axis. With a whole table it would then give rows of other tokens, without an error.
    """
    if isinstance(module, Embedding):
        module.tp_group = None


def split_module(model: nn.Module, names: Iterable[str]) -> nn.Module:
    """A copy of the model with these modules only, as torchtitan cuts a stage."""
    return pipeline_parallel._split_module(model, list(names))
