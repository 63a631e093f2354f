"""One training step through torchtitan's pipeline under a plan, held against the same step on one rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from ..plan.ir import Pass, Plan
from ..plan.stages import stages_at
from ..runtime.seams import parameters_as_they_are
from .collectives import Counts, Groups, Issues, axis_groups, count_collectives, current_pass, plan_groups
from .exact import plain_name, seeded_init
from .parity import Batch, Report, errors, gradients_of, make_batch, precision, relative_error, share, whole_loss


@dataclass
class Passes:
    """Tells the passes apart where autograd does not: gradients are sent, and summed, outside of it."""

    gradients: dict[int, torch.Tensor] = field(default_factory=dict)
    reducing: bool = False

    def __call__(self, name: str, values: Mapping[str, Any]) -> Pass:
        """The pass that a collective belongs to."""
        if self.reducing or (name == "send" and id(values["tensors"][0]) in self.gradients):
            return "backward"
        return current_pass(name, values)

    def watch(self, stage: Any) -> None:
        """Follow what a stage of torch's pipeline sends back, and when it sums gradients."""
        send, reduce_ = stage.get_bwd_send_ops, stage.perform_reduce_grad

        def sending(*args: Any) -> Any:
            ops = send(*args)
            self.gradients.update({id(op.tensor): op.tensor for op in ops})
            return ops

        def reducing(*args: Any) -> None:
            self.reducing = True
            reduce_(*args)
            self.reducing = False

        stage.get_bwd_send_ops, stage.perform_reduce_grad = sending, reducing


def rank_data_step(recipe: str, plan: Plan, path: str, options: dict[str, Any]) -> Report:
    """`rank_pipeline_step` on the recipe's own data."""
    return rank_pipeline_step(recipe, plan, path, options, data=True)


def rank_pipeline_step(recipe: str, plan: Plan, path: str, options: dict[str, Any], data: bool = False) -> Report:
    """The second step of a fresh pipeline: the first also exchanges the shapes of what is sent."""
    from . import titan

    rank = dist.get_rank()
    with precision(plan):
        config = titan.laid_out(titan.config_of(recipe, plan), plan)
        parallel_dims = titan.parallel_dims_of(config, plan)
        schedule, parts = build(config, parallel_dims)
        batch = titan.own_batch(config, plan) if data else make_batch(plan, titan.vocabulary(config))
        mine, tokens = share(batch, plan, rank), titan.counted(batch)
        passes = Passes()
        for stage in stages_of(schedule):
            passes.watch(stage)
        step(config, schedule, parts, mine, tokens, parallel_dims)
        for part in parts:
            part.zero_grad()
        with count_collectives(plan_groups(plan, rank), pass_of=passes) as issued:
            loss = step(config, schedule, parts, mine, tokens, parallel_dims)
        misplaced = tuple(wrong for part in parts for wrong in titan.misplaced(part, plan, rank))
    reference = torch.load(path)
    found = {name: grad for part in parts for name, grad in gradients_of(part).items()}
    held = {stage.index for stage in stages_at(plan, rank)}
    wanted = {name: grad for name, grad in reference["gradients"].items() if plan.stage_of[name].index in held}
    return Report(
        loss=relative_error(whole_loss(plan, loss), reference["loss"]),
        gradients=errors(found, wanted),
        misplaced=misplaced,
        counts=issued.counts(),
    )


def stages_of(schedule: Any) -> list[Any]:
    """torch's stages of this rank, of a schedule with one of them or with several."""
    schedule = getattr(schedule, "inner", schedule)
    return schedule._stages if hasattr(schedule, "_stages") else [schedule._stage]


def build(config: Any, parallel_dims: Any) -> tuple[Any, list[nn.Module]]:
    """torchtitan's schedule, and the parts of the model on this rank with seeded weights."""
    from torchtitan.config import TORCH_DTYPE_MAP
    from torchtitan.distributed.utils import set_spmd_backend
    from torchtitan.tools.utils import set_default_dtype

    set_spmd_backend("spmd_types")
    spec = config.model_spec
    spec.model.update_from_config(config=config)
    with torch.device("meta"), set_default_dtype(TORCH_DTYPE_MAP[config.training.dtype]):
        model = spec.model.build()
    schedule, parts, _, _ = spec.pipelining_fn(
        model,
        parallel_dims=parallel_dims,
        training=config.training,
        parallelism=config.parallelism,
        compile_config=config.compile,
        ac_config=config.activation_checkpoint,
        dump_folder=config.dump_folder,
        device=torch.device("cpu"),
        model_config=spec.model,
        parallelize_fn=spec.parallelize_fn,
        loss_fn=config.loss.build(),
    )
    for part in parts:
        part.to_empty(device="cpu")
        with torch.no_grad(), parameters_as_they_are():
            part.init_weights(buffer_device=None)
        seeded_init(part)
    return schedule, parts


def step(
    config: Any, schedule: Any, parts: list[nn.Module], batch: Batch, tokens: int, parallel_dims: Any
) -> torch.Tensor:
    """This rank's share of the loss after a step, as torchtitan's Trainer makes it; 0 without the last stage."""
    passes = _chunks(batch, _passes(config, parallel_dims))
    losses = [_pass(config, schedule, parts, each, tokens, parallel_dims) for each in passes]
    return torch.stack(losses).sum()


def _passes(config: Any, parallel_dims: Any) -> int:
    """Passes of a step through the schedule. The rows of a batch do not say: a sequence may have several."""
    training = config.training
    ranks = parallel_dims.dp_replicate * parallel_dims.dp_shard
    return training.global_batch_size // (training.local_batch_size * ranks)


def _microbatches(config: Any) -> int:
    """Microbatches of a pass, as the Trainer counts them."""
    return config.training.local_batch_size // config.parallelism.pipeline_parallel_microbatch_size


def _chunks(batch: Batch, count: int) -> list[Batch]:
    """Equal slices of a batch, over sequences."""
    names = ("tokens", "positions", "labels")
    slices = zip(*(getattr(batch, name).chunk(count) for name in names), strict=True)
    more = [{name: value.chunk(count)[index] for name, value in batch.more.items()} for index in range(count)]
    return [Batch(**dict(zip(names, each, strict=True)), more=extra) for each, extra in zip(slices, more, strict=True)]


def _pass(
    config: Any, schedule: Any, parts: list[nn.Module], batch: Batch, tokens: int, parallel_dims: Any
) -> torch.Tensor:
    from torchtitan.distributed.utils import get_spmd_context

    from . import titan

    microbatches = _chunks(batch, _microbatches(config))
    made = [titan.model_inputs(config, parts[0], each, parallel_dims) for each in microbatches]
    stages = stages_of(schedule)
    first, last = any(stage.is_first for stage in stages), any(stage.is_last for stage in stages)
    losses: list[torch.Tensor] = []
    with get_spmd_context(parallel_dims=parallel_dims, spmd_typechecking=False)():
        schedule.step(
            arg_mbs=[(inputs,) for inputs, _, _ in made] if first else None,
            kwarg_mbs=[extra for _, _, extra in made],
            target_mbs=[labels for _, labels, _ in made] if last else None,
            losses=losses if last else None,
            loss_kwargs={"global_valid_tokens": torch.tensor(float(tokens), dtype=torch.float64)},
            return_outputs=False,
        )
    return torch.stack(losses).sum() if last else torch.zeros((), dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What one rank found after a step of our own executor.

    Attributes:
        report: of the loss, which every rank of the pipeline has whole, and of the parameters trained here.
        peak: the most forwards whose backward was to come.
        follows: the second replica's weights here are the first's.
    """

    report: Report
    peak: int
    follows: bool


@dataclass
class Counted:
    """Tells the passes of our own executor apart, and which calls the plan's list is held against.

    That leaves out the loss that every rank of the pipeline is told for the log.
    """

    kind: str = "F"
    beside: bool = False
    kept: list[bool] = field(default_factory=list)

    def __call__(self, name: str, values: Mapping[str, Any]) -> Pass:
        """The pass of a call."""
        self.kept.append(not self.beside)
        return "forward" if self.kind == "F" else "backward"

    def watch(self, schedule: Any) -> None:
        """Follow which operation each stage does, and what the schedule does besides."""
        for part in schedule.parts.values():
            part.before = self._doing(part.before)
        for name, kind in (("follow", "F"), ("_sum", "B")):
            setattr(schedule.sums, name, self._between(getattr(schedule.sums, name), kind))
        schedule.executor.watch.at = self._ending(schedule.executor.watch.at)

    def counts(self, issued: Issues) -> Counts:
        """The calls that a plan lists."""
        pairs = zip(issued.calls, self.kept, strict=True)
        return Issues(calls=[call for call, kept in pairs if kept]).counts()

    def _doing(self, before: Any) -> Any:
        def run(op: Any) -> None:
            self.kind = op.kind
            before(op)

        return run

    def _between(self, call: Any, kind: str) -> Any:
        def run(*args: Any) -> None:
            before, self.kind, self.beside = (self.kind, self.beside), kind, False
            call(*args)
            self.kind, self.beside = before

        return run

    def _ending(self, at: Any) -> Any:
        def run(place: int, op: Any) -> None:
            self.beside = op is None
            at(place, op)

        return run


def pair_groups(plan: Plan, rank: int) -> Groups:
    """`axis_groups`, and each two ranks of the pipeline's axis as well: between them there is a group each way."""
    axis = "+".join(plan.axes_of("pipeline"))
    line = sorted(plan.mesh.group(rank, axis))
    pairs = {tuple(sorted((rank, other))): axis for other in line if other != rank}
    return {**pairs, **axis_groups(plan.mesh, rank)}


def rank_program_step(recipe: str, plan: Plan, path: str, packed: bool = False) -> Ran:
    """The second step of a plan's Program on torchtitan's parts, against the reference in a file."""
    from . import titan

    rank = dist.get_rank()
    with precision(plan):
        config = titan.laid_out(titan.config_of(recipe, plan), plan)
        parallel_dims = titan.parallel_dims_of(config, plan)
        schedule, trained = build(config, parallel_dims)
        batch = make_batch(plan, titan.vocabulary(config), packed)
        mine = share(batch, plan, rank)
        own_step(config, schedule, trained, mine, batch.labels.numel(), parallel_dims)
        for each in trained:
            each.zero_grad()
        counted = Counted()
        counted.watch(schedule)
        with count_collectives(pair_groups(plan, rank), pass_of=counted) as issued:
            loss = own_step(config, schedule, trained, mine, batch.labels.numel(), parallel_dims)
        dist.all_reduce(loss)  # every rank of a pipeline has all of its loss, and so has each tensor rank
        loss /= plan.mesh.product((*plan.axes_of("pipeline"), *plan.axes_of("tensor")))
        found = {name: grad for each in trained for name, grad in gradients_of(each).items()}
        misplaced = tuple(wrong for each in trained for wrong in titan.misplaced(each, plan, rank))
    reference = torch.load(path)
    wanted = {name: reference["gradients"][name] for name in found}
    report = Report(
        loss=relative_error(loss, reference["loss"]),
        gradients=errors(found, wanted),
        misplaced=misplaced,
        counts=counted.counts(issued),
    )
    return Ran(
        report=report,
        peak=schedule.outcome.peak,
        follows=follows(schedule),
    )


def follows(schedule: Any) -> bool:
    """Whether the second replica's weights on this rank are those that any parameter of their names starts with."""
    from ..lowering.local import local_part
    from .exact import seeded_tensor

    for (replica, _), part in schedule.parts.items():
        for name, parameter in part.module.named_parameters() if replica else ():
            full = seeded_tensor(plain_name(name), tuple(parameter.shape))
            here = local_part(full, parameter) if isinstance(parameter, DTensor) else full
            mine = parameter.to_local() if isinstance(parameter, DTensor) else parameter
            if not torch.equal(mine, here.to(mine.dtype)):
                return False
    return True


def own_step(
    config: Any, schedule: Any, trained: list[nn.Module], batch: Batch, tokens: int, parallel_dims: Any
) -> torch.Tensor:
    """The loss of a step of our own schedule, over all of its passes, as torchtitan's Trainer makes it."""
    from torchtitan.distributed.utils import get_spmd_context

    from . import titan

    losses: list[torch.Tensor] = []
    for each in _chunks(batch, _passes(config, parallel_dims)):
        microbatches = _chunks(each, _microbatches(config))
        made = [titan.model_inputs(config, trained[0], one, parallel_dims) for one in microbatches]
        with get_spmd_context(parallel_dims=parallel_dims, spmd_typechecking=False)():
            schedule.step(
                arg_mbs=[(inputs,) for inputs, _, _ in made],
                kwarg_mbs=[extra for _, _, extra in made],
                target_mbs=[labels for _, labels, _ in made],
                loss_kwargs={"global_valid_tokens": torch.tensor(float(tokens), dtype=torch.float64)},
            )
        losses.append(schedule.loss)
    return torch.stack(losses).sum()
