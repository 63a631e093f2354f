"""The small Llama trained by torchtitan's Trainer on the ranks of a `RankPool`, with checkpoints."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as sock:
        sock.bind(("localhost", 0))
        return sock.getsockname()[1]


def rank_train(data: dict[str, Any], port: int, folder: str, stop: int, total: int) -> dict[int, tuple[float, int]]:
    """step -> (loss, tokens seen) of this rank's run under a plan, from the folder's last checkpoint on; see below."""
    return {step: (loss, tokens) for step, (loss, tokens, _) in rank_run(data, port, folder, stop, total).items()}


def rank_run(
    data: dict[str, Any], port: int, folder: str, stop: int, total: int
) -> dict[int, tuple[float, int, float]]:
    """step -> (loss, tokens seen, norm of the gradients) of this rank's run under a plan.

    Args:
        data: the plan's JSON document.
        stop: the last step, which is saved.
        total: steps that the schedule of learning rates is for; each half of them is saved.
    """
    import torch.distributed as dist

    count, rank = dist.get_world_size(), dist.get_rank()
    dist.barrier()  # all have met before the first leaves
    dist.destroy_process_group()
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "RANK": str(rank), "LOCAL_RANK": str(rank)}
    os.environ |= {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    trainer = config(data, Path(folder), stop, total).build()
    losses: dict[int, tuple[float, int, float]] = {}

    def log(step: int, loss: float, _: float, norm: float, *, extra_metrics: dict[str, Any]) -> None:
        losses[step] = (loss, int(extra_metrics["n_tokens_seen"]), norm)

    trainer.metrics_processor.log = log
    trainer.train()
    trainer.close()
    return losses


def config(data: dict[str, Any], folder: Path, stop: int, total: int) -> Any:
    """The tiny recipe under a plan, saving where it stops."""
    from ..plan.data import from_data
    from ..runtime.device import config_for_cpu, prepare
    from ..runtime.init import same_on_any_mesh
    from ..runtime.recipe import recipe_function
    from ..runtime.titan import apply

    prepare("cpu")
    recipe = recipe_function("meshlang_models.llama:tiny")()
    recipe.dump_folder = str(folder)
    recipe.training.steps = stop
    recipe.lr_scheduler.total_steps = total
    recipe.metrics.log_freq = 1
    recipe.checkpoint.enable = True
    recipe.checkpoint.interval = total // 2
    return same_on_any_mesh(config_for_cpu(apply(recipe, from_data(data))))
