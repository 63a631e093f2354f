"""The same first weights on any mesh of a CPU machine.

DTensor draws random numbers in step over a mesh only on accelerators. On a CPU each rank draws
for itself, so the weights of one seed would differ by mesh. Here a full tensor is drawn from the
seed and the place of its config, by the recipe's own function, and each rank keeps its part.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zlib import crc32

import torch
from torch.distributed.tensor import DTensor

from ..lowering.local import local_part

if TYPE_CHECKING:
    from torchtitan.trainer import Trainer


@dataclass(kw_only=True)
class DrawnWhole:
    """An initializer that draws the full tensor and keeps this rank's part.

    Args:
        inner: the recipe's own, called with a plain tensor of the global shape.
        place: of the config and key that it initializes; with `seed` it decides the values.
        calls: modules built of one config are initialized in a fixed order, each with its own values.
    """

    inner: Callable[[torch.Tensor], Any]
    place: str
    seed: int | None
    calls: int = field(default=0)

    def __call__(self, parameter: torch.Tensor) -> None:
        """Initialize one parameter, plain or distributed."""
        full = torch.full(parameter.shape, torch.nan, dtype=parameter.dtype)
        seed = torch.initial_seed() if self.seed is None else self.seed
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(crc32(f"{seed} {self.place} {self.calls}".encode()))
            self.inner(full)
        self.calls += 1
        if full.isnan().all():  # an initializer that leaves the parameter to another, as tied weights do
            return
        if isinstance(parameter, DTensor):
            parameter.to_local().copy_(local_part(full, parameter))
        else:
            parameter.copy_(full)


def same_on_any_mesh(config: Trainer.Config) -> Trainer.Config:
    """The config with every initializer of its model drawing whole tensors.

    Torch's warnings that DTensor's own random numbers differ by rank on a CPU are then beside the point.
    """
    from torchtitan.protocols.module import Module

    warnings.filterwarnings("ignore", message="DTensor (random operators|manual_seed)")
    assert config.model_spec is not None
    for fqn, module, _, _ in config.model_spec.model.traverse(Module.Config, recurse=True):
        inits = getattr(module, "param_init", None)
        if inits:
            module.param_init = {  # pyright: ignore[reportAttributeAccessIssue]
                key: DrawnWhole(inner=inner, place=f"{fqn} {key}", seed=config.debug.seed)
                for key, inner in inits.items()
            }
    return config
