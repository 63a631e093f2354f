"""torchtitan's own Trainer on one rank of a pool; nothing of a plan in it."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from meshlang.runtime.device import config_for_cpu


def rank_losses(recipe: str, folder: str, steps: int, options: dict[str, Any]) -> list[float]:
    """The loss of each step of "package.module:function" on sequences of 64 tokens.

    Args:
        folder: what torchtitan writes goes there.
        options: dotted names of the recipe's fields -> values.
    """
    import torch.distributed as dist
    from torchtitan.components.metrics import MetricsProcessor

    dist.destroy_process_group()  # the Trainer makes its own
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    losses: list[float] = []

    def log(self: MetricsProcessor, step: int, loss: float, *rest: Any, **more: Any) -> None:
        losses.append(loss)

    MetricsProcessor.log = log  # pyright: ignore[reportAttributeAccessIssue]
    module, _, name = recipe.partition(":")
    config = getattr(import_module(module), name)()
    fields = {"dump_folder": folder, "training.steps": steps, "training.seq_len": 64, "metrics.log_freq": 1}
    for path, value in {**fields, **options}.items():
        *parents, field = path.split(".")
        holder = config
        for parent in parents:
            holder = getattr(holder, parent)
        setattr(holder, field, value)
    trainer = config_for_cpu(config).build()
    trainer.train()
    trainer.close()
    return losses
