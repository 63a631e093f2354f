"""A plan's Program on torchtitan's Trainer: our executor, where torch would build a schedule of its own.

What torchtitan asks of a schedule is `step` and `eval`; of a `pipelining_fn`, the parts of the model
that are trained. Those are the first replica's: the optimizer, the checkpoints and the gradient's
norm know no other, and the second follows it (`lowering.replicas`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.distributed_c10d import _get_default_store
from torchtitan.config import TORCH_DTYPE_MAP, TrainingConfig

from ..lowering.carry import Carrying, Now, install, looking
from ..lowering.errors import LoweringError
from ..lowering.execute import Executor, Outcome
from ..lowering.messages import edges
from ..lowering.parts import Feed, ModulePart, even
from ..lowering.replicas import Sums, pair_groups
from ..lowering.transport import Groups, edge_groups
from ..lowering.watch import Watch
from ..pipeline.ir import Program
from ..pipeline.laws import program_problems
from ..plan.ir import Edge, Plan
from ..plan.slices import lengths_of
from ..plan.stages import part
from .masks import untyped
from .seams import split_module

#: Seconds that a rank waits for a message before it says what every rank is at.
PATIENCE = 600.0


@dataclass(kw_only=True)
class ProgramSchedule:
    """What torchtitan runs in place of a schedule of torch's.

    Args:
        feeds: the data of the step's sequences, shared with the parts.
        passes: calls of `step` for each step of the optimizer, which weights change after.
        loss: of the last step or evaluation, over all ranks of the pipeline, on each of them.
    """

    executor: Executor
    parts: Mapping[tuple[int, int], ModulePart]
    feeds: dict[int, Feed]
    sums: Sums
    group: dist.ProcessGroup
    passes: int = 1
    called: int = 0
    loss_options: dict[str, Any] = field(default_factory=dict)
    outcome: Outcome = field(default_factory=Outcome)
    loss: torch.Tensor = field(default_factory=lambda: torch.zeros(()))

    def step(self, *, losses: list[torch.Tensor] | None = None, **given: Any) -> None:
        """Every forward and backward of a pass; `losses` gets that of all sequences, on every rank.

        What is `given` torchtitan names: see `feed`.
        """
        if self.called % self.passes == 0:
            self.begin()
        self.called += 1
        self.feed(**given)
        self.sums.begin()
        self.run(losses, backward=True)
        self.sums.end()

    def eval(self, *, losses: list[torch.Tensor] | None = None, **given: Any) -> None:
        """The forwards only."""
        self.begin()
        for each in self.parts.values():
            each.module.train(False)
        self.feed(**given)
        self.run(losses, backward=False)

    def begin(self) -> None:
        """Weights may have changed: the second replica follows the first; once, it is made ready for that."""
        for (replica, _), each in self.parts.items():
            each.module.train()
            if replica and any(p.is_meta for p in each.module.parameters()):
                fill(each.module, each.device)
        self.sums.follow()

    def feed(
        self,
        *,
        arg_mbs: Sequence[tuple[torch.Tensor, ...]] | None = None,
        kwarg_mbs: Sequence[Mapping[str, Any]] | None = None,
        target_mbs: Sequence[torch.Tensor] | None = None,
        loss_kwargs: dict[str, Any] | None = None,
        return_outputs: bool = False,
    ) -> None:
        """The data of this pass: a microbatch is a sequence of the Program."""
        assert not return_outputs, "outputs of a pipeline of subsequences are never whole"
        count = self.executor.program.sequences
        more = kwarg_mbs if kwarg_mbs is not None else [{}] * count
        assert len(more) == count, f"{len(more)} microbatches, and the Program has {count}"
        self.loss_options.clear()
        self.loss_options.update(loss_kwargs or {})
        for index in range(count):
            self.feeds[index] = Feed(
                tokens=arg_mbs[index][0] if arg_mbs else None,
                labels=target_mbs[index] if target_mbs else None,
                more=more[index],
            )

    def run(self, losses: list[torch.Tensor] | None, *, backward: bool) -> None:
        """The Program, and its loss."""
        for each in self.parts.values():
            each.train = backward
        self.outcome = self.executor.step(backward=backward)
        self.feeds.clear()
        found = [each.to(torch.float64).reshape(()) for each in self.outcome.losses.values()]
        device = next(iter(self.parts.values())).device
        self.loss = torch.stack(found).sum() if found else torch.zeros((), dtype=torch.float64, device=device)
        dist.all_reduce(self.loss, group=self.group)
        if losses is not None:
            losses.append(self.loss.to(torch.float32))


def fill(module: Any, device: torch.device) -> None:
    """A part that no one has initialized gets memory, and buffers; its weights come from the other replica."""
    module.to_empty(device=device)
    with torch.no_grad(), torch.random.fork_rng():
        module.init_weights(buffer_device=None)


@dataclass(frozen=True, kw_only=True)
class Pipelining:
    """A `pipelining_fn` of torchtitan for a plan that has a Program."""

    plan: Plan

    def __call__(
        self,
        model: nn.Module,
        *,
        parallel_dims: Any,
        training: TrainingConfig,
        parallelize_fn: Any,
        loss_fn: Any,
        device: torch.device,
        **options: Any,
    ) -> tuple[ProgramSchedule, list[nn.Module], bool, bool]:
        """(schedule, parts to train, whether it takes tokens, whether it gives losses): both hold on every rank."""
        plan, program = self.plan, program_of(self.plan)
        mesh, now, feeds = parallel_dims.get_mesh("pp"), Now(), dict[int, Feed]()
        loss_options: dict[str, Any] = {}
        ends = {program.stages - 1: lambda output, labels: loss_fn(output, labels, **loss_options)[0]}
        words = {key: options[key] for key in PARALLELIZE}
        parallelize = partial(parallelize_fn, parallel_dims=parallel_dims, training=training, **words)
        parts = dict[tuple[int, int], ModulePart]()
        for replica, stage in program.held(mesh.get_local_rank()):
            module = split_module(model, plan.stages[stage].modules)
            carrying = carried(part(plan, plan.stages[stage]), module, now) if program.subsequences > 1 else ()
            parts[replica, stage] = ModulePart(
                module=parallelize(module),
                now=now,
                feeds=feeds,
                lengths=lengths_of(plan) or even(training.seq_len, program.subsequences),
                shape=Between(plan=plan, stage=stage, batch=training.local_batch_size // program.sequences),
                dtype=TORCH_DTYPE_MAP[training.mixed_precision_param],
                device=device,
                loss=ends.get(stage),
                carrying=carrying,
            )
        schedule = _schedule(plan, program, mesh, parts, feeds, loss_options)
        return schedule, [each.module for (replica, _), each in parts.items() if replica == 0], True, True


def _schedule(
    plan: Plan,
    program: Program,
    mesh: Any,
    parts: dict[tuple[int, int], ModulePart],
    feeds: dict[int, Feed],
    loss_options: dict[str, Any],
) -> ProgramSchedule:
    """The Program over these parts; each tells the sums of both replicas when its gradients are whole."""
    modules = {key: each.module for key, each in parts.items()}
    sums = _sums(program, mesh, modules, eager=_eager(plan))
    for (replica, stage), each in parts.items():
        each.synced = partial(sums.finished, replica, stage)
    return ProgramSchedule(
        executor=_executor(program, mesh, parts),
        parts=parts,
        feeds=feeds,
        sums=sums,
        group=mesh.get_group(),
        passes=plan.sizes.accumulation,
        loss_options=loss_options,
    )


def carried(plan: Plan, module: nn.Module, now: Now) -> tuple[Carrying, ...]:
    """What attention of a stage keeps between subsequences; no type checker looks inside."""
    found = install(plan, module, now)
    untyped(module.get_submodule(name) for name in looking(plan))
    return found


#: What `parallelize_fn` is given of what a `pipelining_fn` is.
PARALLELIZE = ("parallelism", "compile_config", "ac_config", "dump_folder")


def pipelines(mesh: Any) -> tuple[tuple[int, ...], ...]:
    """The global ranks of every pipeline: the axis is the outermost one, as torchtitan numbers ranks."""
    inner = dist.get_world_size() // mesh.size()
    return tuple(tuple(place * inner + index for place in range(mesh.size())) for index in range(inner))


def _executor(program: Program, mesh: Any, parts: Mapping[tuple[int, int], ModulePart]) -> Executor:
    rank, every = mesh.get_local_rank(), pipelines(mesh)
    mine = next(ranks for ranks in every if dist.get_rank() in ranks)
    cpu = mesh.device_type == "cpu"
    transport = Groups(
        groups=edge_groups(edges(program), every),
        ranks=mine,
        rank=rank,
        limit=timedelta(seconds=PATIENCE) if cpu else None,
    )
    board = PrefixStore(f"meshlang/{mine[0]}", _get_default_store())
    watch = Watch(rank=rank, ranks=program.ranks, order=program.order[rank], board=board)
    return Executor(program=program, rank=rank, parts=parts, transport=transport, watch=watch)


def _eager(plan: Plan) -> bool:
    """Whether gradients of both replicas are summed stage by stage."""
    return plan.pipeline is not None and dict(plan.pipeline.options).get("sync", "eager") == "eager"


def _sums(program: Program, mesh: Any, modules: Mapping[tuple[int, int], nn.Module], *, eager: bool) -> Sums:
    every = pipelines(mesh)
    mine = next(ranks for ranks in every if dist.get_rank() in ranks)
    groups = pair_groups(program, every)
    return Sums(program=program, rank=mesh.get_local_rank(), ranks=mine, modules=modules, groups=groups, eager=eager)


@dataclass(frozen=True, kw_only=True)
class Between:
    """The local shapes of what a stage gets: its input, and the gradient of its output."""

    plan: Plan
    stage: int
    batch: int

    def __call__(self, kind: str, tokens: int) -> tuple[int, ...]:
        """(kind of message, tokens of a subsequence) -> shape on this rank."""
        edge = entering(self.plan, self.stage if kind == "F" else self.stage + 1)
        whole = {"batch": self.batch, "seq": tokens}
        shape = []
        for names, size, axes in zip(edge.names, edge.shape, edge.src.dims, strict=True):
            known = whole.get(names[0], size)
            assert known is not None, edge
            cut = 1 if names == ("batch",) else self.plan.mesh.product(axes)
            shape.append(known // cut)
        return tuple(shape)


def entering(plan: Plan, stage: int) -> Edge:
    """The boundary that a value crosses as it comes into a stage."""
    for module in plan.stages[stage].modules:
        for edge in plan.edges:
            if edge.module == module and edge.port.startswith("input.") and ("seq",) in edge.names:
                return edge
    raise LoweringError([f"no boundary says what comes into stage {stage}: {', '.join(plan.stages[stage].modules)}"])


def program_of(plan: Plan) -> Program:
    """The Program of a plan whose schedule runs here.

    Raises:
        LoweringError: it would not come to its end, or give wrong gradients.
    """
    assert plan.pipeline is not None
    assert plan.pipeline.program is not None
    problems = program_problems(plan.pipeline.program, buffers=None)
    if problems:
        raise LoweringError([f"`{plan.pipeline.schedule}`: {problem.message}" for problem in problems])
    return plan.pipeline.program
