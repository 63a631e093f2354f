"""A plan's stages as torchtitan's pipeline: its schedule, its microbatches, and which modules each stage has.

torchtitan cuts the model, builds the schedule and runs it. What is ours is what it is told, and
that each part of the model is parallelized by the part of the plan that is about it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn
from torchtitan.components.loss import ChunkedLossWrapper
from torchtitan.config import ParallelismConfig
from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.trainer import Trainer

from ..diagnostics import counted
from ..lowering.errors import LoweringError
from ..plan.ir import Plan
from ..plan.launchable import ORDER, schedule_name
from ..plan.stages import part, splits_backward, turns_back
from .sequence_pipeline import Pipelining
from .torch_sequences import TorchSequences


@dataclass(frozen=True, kw_only=True)
class PlanPipelining:
    """A `pipelining_fn` of torchtitan: its own, with the order of actions that a plan may say."""

    plan: Plan

    def __call__(
        self, model: nn.Module, *, parallelism: ParallelismConfig, **options: Any
    ) -> tuple[Any, list[nn.Module], bool, bool]:
        """(schedule, parts of the model on this rank, first stage is here, last stage is here)."""
        with order_file(self.plan) as path:
            parallelism = replace(parallelism, pipeline_parallel_schedule_csv=path)
            return pipeline_llm(model, parallelism=parallelism, **options)


@contextmanager
def order_file(plan: Plan) -> Iterator[str]:
    """The plan's order of actions as a file that torch reads, or "" for a schedule that torch makes itself."""
    assert plan.pipeline is not None
    if plan.pipeline.ops != ORDER:
        yield ""
        return
    with TemporaryDirectory(prefix="meshlang-") as folder:
        path = Path(folder) / "order.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(plan.pipeline.order)
        yield str(path)


def pipelined(config: Trainer.Config, plan: Plan) -> Trainer.Config:
    """The config with the plan's pipeline in it; sizes are those of the run by now.

    Raises:
        LoweringError: the batch does not divide into the microbatches, or the recipe has something
            that torchtitan gets wrong, or cannot do, under this schedule.
    """
    if not plan.stages:
        return config
    problems = [*_uneven(config, plan), *_losses(config, plan)]
    problems += _beside(config, plan) if sliced(plan) or runs_program(plan) else ()
    problems += () if runs_program(plan) else _validation(config, plan)
    if problems:
        raise LoweringError(problems)
    assert config.model_spec is not None
    parallelism = replace(
        config.parallelism,
        pipeline_parallel_schedule="1F1B" if sliced(plan) or runs_program(plan) else str(schedule_name(plan)),
        pipeline_parallel_microbatch_size=config.training.local_batch_size // _microbatches(plan),
        pipeline_parallel_layers_per_stage=None,
        pipeline_parallel_schedule_csv="",
        module_fqns_per_model_part=[list(stage.modules) for stage in plan.stages],
    )
    made = TorchSequences if sliced(plan) else Pipelining if runs_program(plan) else PlanPipelining
    return replace(
        config, parallelism=parallelism, model_spec=replace(config.model_spec, pipelining_fn=made(plan=plan))
    )


def _microbatches(plan: Plan) -> int:
    assert plan.pipeline is not None
    return plan.pipeline.microbatches or 1


def _uneven(config: Trainer.Config, plan: Plan) -> Iterator[str]:
    batch, count = config.training.local_batch_size, _microbatches(plan)
    if batch % count:
        yield f"{counted(batch, 'sequence of a rank', does=True)} not divide into {count} microbatches"


def _losses(config: Trainer.Config, plan: Plan) -> Iterator[str]:
    """A chunked loss frees the head's weights in the forward; torch then loses gradients computed later."""
    if isinstance(config.loss, ChunkedLossWrapper.Config) and splits_backward(plan) and not runs_program(plan):
        assert plan.pipeline is not None
        yield (
            f"`{plan.pipeline.schedule}` computes gradients of weights late, and the recipe's ChunkedLossWrapper "
            "frees the head's before: torch then drops the gradient of the last norm without an error; "
            "a recipe with CrossEntropyLoss trains"
        )


def _validation(config: Trainer.Config, plan: Plan) -> Iterator[str]:
    """torch's forward-only step looks for gradients where two neighbouring stages lie on one rank."""
    if config.validator.enable and turns_back(plan):
        assert plan.pipeline is not None
        yield f"torch cannot validate under `{plan.pipeline.schedule}`: turn the recipe's validator off"


def _beside(config: Trainer.Config, plan: Plan) -> Iterator[str]:
    """What our own executor does not do."""
    assert plan.pipeline is not None
    name = plan.pipeline.schedule
    if isinstance(config.loss, ChunkedLossWrapper.Config):
        yield (
            f"`{name}` computes the loss of each subsequence at once, and the recipe's ChunkedLossWrapper "
            "of all its parts together: a recipe with CrossEntropyLoss trains"
        )
    if (plan.pipeline.subsequences or 1) > 1 and config.compile.enable and "model" in config.compile.components:
        yield f"`{name}` keeps keys and values between subsequences, which cannot be compiled: turn `compile` off"


def part_of(plan: Plan, model: nn.Module) -> Plan:
    """The plan of the stage that a part of the model is; of the whole model the plan itself.

    Raises:
        LoweringError: the part is none of the plan's stages.
    """
    if not plan.stages:
        return plan
    here = {name for name, _ in model.named_modules()}
    have = {module for stage in plan.stages for module in stage.modules if module in here}
    for stage in plan.stages:
        if have == set(stage.modules):
            return part(plan, stage)
    raise LoweringError([f"no stage of the plan has the modules {', '.join(sorted(have))}"])


def contiguous_ends(plan: Plan, stage: Plan, model: nn.Module) -> None:
    """What a stage receives and sends, values and gradients, lies contiguous in memory.

    A sequence scattered over a tensor axis does not, and torch sends nothing else.
    """
    if stage is plan:
        return
    if not any(edge.module == "" and edge.port != "output" for edge in stage.edges):
        model.register_forward_pre_hook(lambda _, args: tuple(map(_ContiguousGradient.apply, args)))
    if stage.loss is None:
        # no view of the output: torch detaches outputs in place, which a view does not allow
        model.register_forward_hook(lambda _, __, output: output.contiguous())


class _ContiguousGradient(torch.autograd.Function):
    """The same value; its gradient is contiguous."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient.contiguous()


def runs_program(plan: Plan) -> bool:
    """Whether the plan's schedule runs on our own executor, and not on torch's."""
    return plan.pipeline is not None and not plan.pipeline.by_torch


def sliced(plan: Plan) -> bool:
    """Whether torch's pipeline runs a Program of ours."""
    return plan.pipeline is not None and plan.pipeline.program is not None and plan.pipeline.by_torch


def shown_loss(plan: Plan, loss: torch.Tensor, group: Any) -> torch.Tensor:
    """The loss of the last stage, on every rank of a pipeline; torchtitan's own is -1 on all others."""
    shown = loss.detach().reshape(()).to(torch.float32).clone()
    torch.distributed.broadcast(shown, group=group, group_src=plan.stages[-1].coordinate)
    return shown
