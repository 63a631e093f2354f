"""torchtitan's model, loss and backward as its Trainer runs them, without the rest of a Trainer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Placement, Replicate

from ..lowering.local import is_strided
from ..mesh import Mesh
from ..plan.ir import Plan, Tensor
from ..runtime.device import config_for_cpu, prepare
from ..runtime.seams import parameters_as_they_are
from .exact import plain_name, seeded_init

if TYPE_CHECKING:
    from torchtitan.distributed import ParallelDims
    from torchtitan.trainer import Trainer

    from .parity import Batch


def config_of(recipe: str, plan: Plan) -> Trainer.Config:
    """A recipe's config, made ready for a CPU, with the plan's sizes and element types only."""
    from ..runtime.titan import training
    from .parity import named

    prepare("cpu")
    config = config_for_cpu(named(recipe)())
    return replace(config, training=training(config.training, plan), activation_checkpoint=None)


def laid_out(config: Trainer.Config, plan: Plan) -> Trainer.Config:
    """The config with all of the plan in it."""
    from ..runtime.titan import apply

    return apply(config, plan)


def vocabulary(config: Trainer.Config) -> int:
    """How many tokens the model knows."""
    assert config.model_spec is not None
    model: Any = config.model_spec.model
    return model.vocab_size


def own_batch(config: Trainer.Config, plan: Plan) -> Batch:
    """The first step's batch of all ranks, as the recipe's own data loader makes it for one."""
    from .parity import Batch

    loader = config.dataloader.build(
        dp_world_size=1,
        dp_rank=0,
        tokenizer=config.tokenizer.build(tokenizer_path=config.hf_assets_path),
        seq_len=plan.sizes.seq,
        local_batch_size=plan.sizes.batch,
    )
    inputs, labels = next(iter(loader))
    more = {name: value for name, value in inputs.items() if name not in ("input", "positions")}
    return Batch(tokens=inputs["input"], positions=inputs["positions"], labels=labels, more=more)


def counted(batch: Batch) -> int:
    """Labels that are not to be ignored: over so many the loss is a mean."""
    from torchtitan.components.loss import IGNORE_INDEX

    return int((batch.labels != IGNORE_INDEX).sum())


def parallel_dims_of(config: Trainer.Config, plan: Plan) -> ParallelDims:
    """torchtitan's meshes for the plan's ranks."""
    from torchtitan.distributed import ParallelDims

    parallel_dims = ParallelDims.from_config(config.parallelism, plan.ranks)
    parallel_dims.build_mesh()
    return parallel_dims


def build(config: Trainer.Config, plan: Plan, parallel_dims: ParallelDims | None = None) -> nn.Module:
    """The model with seeded weights; parallelized by the config's own function when there is a mesh."""
    from torchtitan.config import TORCH_DTYPE_MAP
    from torchtitan.distributed.utils import set_spmd_backend
    from torchtitan.tools.utils import set_default_dtype

    assert config.model_spec is not None
    set_spmd_backend("spmd_types")
    model_config = config.model_spec.model
    model_config.update_from_config(config=config)
    with torch.device("meta"), set_default_dtype(TORCH_DTYPE_MAP[config.training.dtype]):
        model = model_config.build()
    if parallel_dims is not None:
        config.model_spec.parallelize_fn(
            model,
            parallel_dims=parallel_dims,
            training=config.training,
            parallelism=config.parallelism,
            compile_config=config.compile,
            ac_config=config.activation_checkpoint,
            dump_folder=config.dump_folder,
        )
    model.to_empty(device="cpu")
    with torch.no_grad(), parameters_as_they_are():
        model.init_weights(buffer_device=None)
    seeded_init(model)
    return model


def forward_backward(
    config: Trainer.Config,
    model: nn.Module,
    batch: Batch,
    tokens: int,
    parallel_dims: ParallelDims | None = None,
    *,
    typecheck: bool = False,
) -> torch.Tensor:
    """This rank's share of the loss, after its backward.

    Args:
        tokens: of the whole batch, over which the loss is a mean.
        typecheck: let spmd_types check the type of every value on the way.
    """
    import spmd_types as spmd
    from torchtitan.distributed.utils import get_spmd_context

    loss_function = config.loss.build()
    inputs, labels, extra = model_inputs(config, model, batch, parallel_dims)
    with _context(get_spmd_context, parallel_dims, typecheck):
        logits = model(inputs, **extra)
        loss, _ = loss_function(logits, labels, torch.tensor(float(tokens), dtype=torch.float64))
        del logits  # as the Trainer does
        with spmd.no_typecheck():
            loss.backward()
    return loss


def _context(
    get_spmd_context: Any, parallel_dims: ParallelDims | None, typecheck: bool
) -> AbstractContextManager[None]:
    if parallel_dims is None:
        return nullcontext()
    return get_spmd_context(parallel_dims=parallel_dims, spmd_typechecking=typecheck)()


def model_inputs(
    config: Trainer.Config, model: nn.Module, batch: Batch, parallel_dims: ParallelDims | None
) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """Tokens, labels and the other arguments, as the Trainer's own post-processing makes them."""
    from torchtitan.distributed.context_parallel import prepare_context_parallel_input
    from torchtitan.distributed.spmd_types import annotate_input_spmd_types

    from ..runtime.trainer import PlanTrainer, ready

    decoder: Any = model
    masks = decoder.get_attention_masks(batch.positions)
    extra: dict[str, Any] = {"positions": batch.positions, "attention_masks": masks, **batch.more}
    inputs, labels = batch.tokens, batch.labels
    if parallel_dims is None:
        return inputs, labels, extra
    if isinstance(config, PlanTrainer.Config) and config.plan is not None:
        return ready(config.plan, {"input": inputs, "labels": labels, **extra}, parallel_dims)
    if parallel_dims.cp_enabled:
        inputs, labels, extra = prepare_context_parallel_input(
            inputs,
            labels,
            extra,
            parallel_dims.get_mesh("cp"),
            torch.device("cpu"),
            config.parallelism.context_parallel_load_balancer,
        )
    return annotate_input_spmd_types(parallel_dims, inputs, labels, extra)


def misplaced(model: nn.Module, plan: Plan, rank: int) -> Iterator[str]:
    """Parameters whose part on this rank has another shape or placement than the plan says."""
    here = plan.mesh.coordinate(rank)
    for name, parameter in model.named_parameters():
        tensor = plan.by_fqn[plain_name(name)]
        local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
        shape = tensor.local_shape(plan.mesh, here)
        if tuple(local.shape) != shape:
            yield f"{name}: {tuple(local.shape)} here, {shape} planned"
        if isinstance(parameter, DTensor):
            yield from _placed_apart(name, parameter, tensor, plan.mesh)


def _placed_apart(name: str, parameter: DTensor, tensor: Tensor, mesh: Mesh) -> Iterator[str]:
    """Cuts of a parameter, as (dim, ranks), against those of the plan."""
    sizes = parameter.device_mesh.shape
    found = sorted(_cuts(parameter.placements, sizes))
    want = [(dim, mesh.size(axis)) for dim, cut in enumerate(tensor.dims) for axis in cut.axes if mesh.size(axis) > 1]
    stored = mesh.product(tensor.stored)
    want += [(0, stored)] if stored > 1 else []
    if found != sorted(want):
        yield f"{name}: cut as {found} here, {sorted(want)} planned"


def _cuts(placements: tuple[Placement, ...], sizes: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    for placement, size in zip(placements, sizes, strict=True):
        if size > 1 and not isinstance(placement, Replicate):
            assert placement.is_shard() or is_strided(placement), placement
            yield placement.dim, size  # pyright: ignore[reportAttributeAccessIssue]
