"""The function that torchtitan calls to parallelize a model, made of a plan.

In torchtitan's own order: states and boundary values, activation checkpointing, compilation,
FSDP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, DataParallelMeshDims, MixedPrecisionPolicy
from torchtitan.config import TORCH_DTYPE_MAP, CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed import ParallelDims
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.distributed.compile import apply_compile
from torchtitan.distributed.full_dtensor import resolve_fsdp_mesh, validate_config
from torchtitan.protocols.module import Module

from ..lowering.errors import LoweringError
from ..lowering.fit import fit
from ..lowering.ops import install, installing
from ..lowering.store import plain_sums, shard_units
from ..plan.flags import policy
from ..plan.ir import Plan
from ..plan.launchable import parts
from .batch import meshes
from .masks import masked, untyped
from .pipeline import contiguous_ends, part_of
from .seams import set_sharding_config, whole_vocabulary
from .sharding import holder, sharding_configs


@dataclass(frozen=True, kw_only=True)
class PlanParallelize:
    """A `parallelize_fn` of torchtitan that does what a plan says, and nothing else."""

    plan: Plan

    def __call__(
        self,
        model: nn.Module,
        *,
        parallel_dims: ParallelDims,
        training: TrainingConfig,
        parallelism: ParallelismConfig,
        compile_config: CompileConfig,
        ac_config: Any,
        dump_folder: str,
    ) -> nn.Module:
        """The model, or its part that is one stage, placed; on the meta device, or with the same values on all ranks.

        Raises:
            LoweringError: the plan and the model, or the plan and the run, do not fit.
        """
        same_degrees(self.plan, parallel_dims, parallelism)
        plan = part_of(self.plan, model)
        fit(plan, model)
        place(plan, model, parallel_dims)
        recompute(plan, model, ac_config)
        if compile_config.enable and "model" in compile_config.components:
            compilable(plan)
            apply_compile(model, compile_config=compile_config, parallel_dims=parallel_dims)
        store(plan, model, parallel_dims, training)
        contiguous_ends(self.plan, plan, model)
        return model


def parallelize_fn(plan: Plan) -> PlanParallelize:
    """The function for torchtitan's model spec."""
    return PlanParallelize(plan=plan)


def degrees(plan: Plan) -> dict[str, int]:
    """torchtitan's axes and their sizes."""
    return {name: plan.mesh.product(axes) for name, axes in parts(plan).items()}


def same_degrees(plan: Plan, parallel_dims: ParallelDims, parallelism: ParallelismConfig) -> None:
    """The run's mesh is the plan's, and its backend is the one that plans are lowered to."""
    wrong = [
        f"{name} is {getattr(parallel_dims, name)} in the run and {size} in the plan"
        for name, size in degrees(plan).items()
        if getattr(parallel_dims, name) != size
    ]
    if parallelism.spmd_backend != "spmd_types":
        wrong.append(f"plans are lowered to spmd_types, and the run says {parallelism.spmd_backend}")
    if wrong:
        raise LoweringError(wrong)


def place(plan: Plan, model: nn.Module, parallel_dims: ParallelDims) -> None:
    """Every state and boundary value of the model as the plan says, whatever the model says itself."""
    assert isinstance(model, Module), type(model)
    validate_config(parallel_dims, model)
    masked(plan, model)
    untyped(install(plan, model, meshes(plan, parallel_dims)))
    configs = sharding_configs(plan)
    for fqn, module in model.named_modules():
        set_sharding_config(module, configs.get(fqn))
    model.parallelize(parallel_dims)
    tie(plan, model)
    for fqn, module in model.named_modules():
        tensor = plan.by_fqn.get(f"{fqn}.weight")
        if tensor is not None and not any(plan.role(axis) == "tensor" for axis in tensor.dims[0].axes):
            whole_vocabulary(module)


def recompute(plan: Plan, model: nn.Module, config: Any) -> None:
    """Each module of `[recompute]` keeps its inputs only, and runs again in the backward.

    torchtitan's own policy wraps every layer; this one what the plan names, by the same wrapper of torch's.

    Raises:
        LoweringError: the run's activation checkpointing is not the plan's.
    """
    if (config is not None and not isinstance(config, FullAC.Config)) or (config is None) != (not plan.recompute):
        asked = "none" if config is None else type(config).__qualname__
        raise LoweringError([f"activation_checkpoint is {asked} in the run and {policy(plan)} in the plan"])
    modules = dict(model.named_modules())
    for fqn in plan.recompute:
        if fqn in modules:
            options = {name: getattr(config, name) for name in ("preserve_rng_state", "determinism_check", "debug")}
            parent, _, name = fqn.rpartition(".")
            wrapped = checkpoint_wrapper(modules[fqn], early_stop=False, **options)
            modules[parent].register_module(name, wrapped)


def compilable(plan: Plan) -> None:
    """torchtitan compiles each layer as one graph, which a strategy's own computation would break."""
    if names := installing(plan):
        raise LoweringError([f"{', '.join(names)} cannot be compiled: `compile.enable` must be off"])


def tie(plan: Plan, model: nn.Module) -> None:
    """Names of one tensor are one parameter again: torchtitan makes a parameter of each."""
    for tensor in plan.tensors:
        for name in tensor.tied:
            parameter = model.get_parameter(tensor.fqn)
            setattr(model.get_submodule(holder(name)), name.rpartition(".")[2], parameter)


def store(plan: Plan, model: nn.Module, parallel_dims: ParallelDims, training: TrainingConfig) -> None:
    """FSDP over the plan's units; also where nothing is stored, for precision and gradient sums."""
    mesh, dims = fsdp_mesh(plan, parallel_dims)
    options: dict[str, Any] = {
        "mesh": mesh,
        "dp_mesh_dims": dims,
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=TORCH_DTYPE_MAP[training.mixed_precision_param],
            reduce_dtype=TORCH_DTYPE_MAP[training.mixed_precision_reduce],
            cast_forward_inputs=False,
        ),
    }
    if training.enable_cpu_offload:
        options["offload_policy"] = CPUOffloadPolicy()
    shard_units(plan, model, options)
    if mesh.device_type == "cpu":
        plain_sums(model)


def fsdp_mesh(plan: Plan, parallel_dims: ParallelDims) -> tuple[DeviceMesh, DataParallelMeshDims | None]:
    """torchtitan's storage mesh, and which of its axes store and which only sum.

    torchtitan itself always stores over cp; here the plan says.
    """
    mesh, dims = resolve_fsdp_mesh(parallel_dims)
    stored = {axis for tensor in plan.tensors for axis in tensor.stored}
    if dims is None or set(parts(plan)["cp"]) <= stored:
        return mesh, dims
    copies = (*dims.replicate_names, "cp")
    return mesh, DataParallelMeshDims(shard="dp_shard", replicate=copies if len(copies) > 1 else "cp")
