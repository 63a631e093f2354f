"""A plan laid over a torchtitan config."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchtitan.components.loss import BaseLoss, ChunkedLossWrapper
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import (
    ActivationCheckpointingConfig,
    FullAC,
    MemoryBudgetAC,
    SelectiveAC,
)
from torchtitan.trainer import Trainer

from ..compiler import Request, compile
from ..lowering.errors import LoweringError
from ..lowering.ops import installing
from ..plan.flags import policy, reshard
from ..plan.ir import Plan
from ..plan.launchable import cuts_sequence, parts
from .batch import balance
from .checkpointer import checked
from .parallel import degrees, parallelize_fn
from .pipeline import pipelined
from .trainer import with_trainer

logger = logging.getLogger(__name__)


def apply(config: Trainer.Config, spec: Plan | str | Path) -> Trainer.Config:
    """The config with the plan in it: degrees, sizes, element types and the parallelize function.

    What the plan does not speak of stays as it is. The given config is left alone, but for
    what it shares with the new one. torchtitan's own checks of the config run again.

    Args:
        spec: a plan, or the path of a spec, which is compiled for the ranks of this run.

    Raises:
        SpecError: the spec has findings.
        LoweringError: the config has no model, recomputes otherwise than the plan, or the batch does
            not divide over the ranks.
    """
    plan = spec if isinstance(spec, Plan) else plan_for(spec)
    if config.model_spec is None:
        raise LoweringError(["the recipe has no model spec"])
    config = replace(
        config,
        model_spec=replace(config.model_spec, parallelize_fn=parallelize_fn(plan)),
        parallelism=parallelism(config.parallelism, plan),
        training=training(config.training, plan),
        loss=loss(config.loss, plan),
        checkpoint=checked(config.checkpoint, plan),
        activation_checkpoint=recomputing(config, plan),
    )
    for what in beyond(config):
        logger.warning("the plan does not list every collective of this run: %s", what)
    return with_trainer(pipelined(config, plan), plan)


def beyond(config: Trainer.Config) -> Iterator[str]:
    """What a recipe adds to the collectives of a plan, without any change to its values."""
    if isinstance(config.loss, ChunkedLossWrapper.Config):
        yield "the chunked loss runs the head, and reduces, once a chunk"


def recomputing(config: Trainer.Config, plan: Plan) -> ActivationCheckpointingConfig:
    """torchtitan's activation checkpointing of the plan's modules; its options are the recipe's.

    Raises:
        LoweringError: the recipe asks for another kind, or for one where the plan has none.
    """
    asked = config.activation_checkpoint
    if asked is not None and policy_of(config) != policy(plan):
        raise LoweringError(
            [f"the recipe's activation_checkpoint is {policy_of(config)}, and the plan makes it {policy(plan)}"]
        )
    return (asked or FullAC.Config()) if plan.recompute else None


def policy_of(config: Trainer.Config) -> str:
    """torchtitan's word for the kind of activation checkpointing that a config asks for."""
    asked = config.activation_checkpoint
    if asked is None:
        return "none"
    words = {FullAC.Config: "full", SelectiveAC.Config: "selective", MemoryBudgetAC.Config: "memory-budget"}
    return words.get(type(asked), type(asked).__qualname__)


def plan_for(path: str | Path) -> Plan:
    """The plan of a spec for as many ranks as this run has, where it runs under torchrun."""
    world = os.environ.get("WORLD_SIZE")
    return compile(Request.of(path, ranks=int(world) if world is not None else None, launch=True))


def parallelism(config: ParallelismConfig, plan: Plan) -> ParallelismConfig:
    """Degrees of the plan's mesh, under the backend that plans are lowered to."""
    degree = degrees(plan)
    return replace(
        config,
        data_parallel_replicate_degree=degree["dp_replicate"],
        data_parallel_shard_degree=degree["dp_shard"],
        context_parallel_degree=degree["cp"],
        tensor_parallel_degree=degree["tp"],
        pipeline_parallel_degree=degree["pp"],
        expert_parallel_degree=1,
        context_parallel_load_balancer=load_balancer(config, plan),
        enable_sequence_parallel=cuts_sequence(plan),
        fsdp_reshard_after_forward=reshard(plan),
        spmd_backend="spmd_types",
    )


def load_balancer(config: ParallelismConfig, plan: Plan) -> str | None:
    """torchtitan's word for which tokens each rank of the context axis has."""
    for axis in parts(plan)["cp"]:
        return "headtail" if balance(plan, axis) == "head_tail" else None
    return config.context_parallel_load_balancer


def training(config: TrainingConfig, plan: Plan) -> TrainingConfig:
    """Sizes and element types of the run, where the spec says them; no CUDA graph of a strategy's own computation."""
    words = {"state": "dtype", "compute": "mixed_precision_param", "reduce": "mixed_precision_reduce"}
    said = {words[word]: getattr(plan.precision, word) for word in plan.precision.written}
    config = replace(config, **said)
    if installing(plan):
        config = replace(config, disable_cuda_graphs=True)
    if plan.sizes.seq is not None:
        config = replace(config, seq_len=plan.sizes.seq)
    if plan.sizes.batch is not None:
        config = replace(config, global_batch_size=plan.sizes.batch, local_batch_size=local_batch(plan))
    return config


def local_batch(plan: Plan) -> int:
    """Sequences of one rank in one forward."""
    assert plan.sizes.batch is not None
    degree = degrees(plan)
    shares = degree["dp_replicate"] * degree["dp_shard"] * plan.sizes.accumulation
    if plan.sizes.batch % shares:
        raise LoweringError([f"a batch of {plan.sizes.batch} does not divide into {shares} equal shares"])
    return plan.sizes.batch // shares


def loss(config: BaseLoss.Config, plan: Plan) -> BaseLoss.Config:
    """The loss, also one inside another, told the whole vocabulary's size: a part of the logits does not show it."""
    inner: Any = config
    if plan.loss is None:
        return config
    if isinstance(getattr(inner, "loss_fn", None), BaseLoss.Config):
        return replace(inner, loss_fn=loss(inner.loss_fn, plan))
    if not hasattr(inner, "global_vocab_size") or inner.global_vocab_size is not None:
        return config
    return replace(inner, global_vocab_size=plan.loss.shape[plan.loss.vocab])
