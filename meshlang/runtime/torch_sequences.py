"""A Program of one replica on torch's pipeline: its microbatches are subsequences.

torch runs any order of a single replica's actions, and knows nothing of what a microbatch is. What it lacks is
told around its calls: which subsequence a stage computes on, and when the store of keys may drop a sequence. All
messages have one shape there, so subsequences are of one length. Shapes are given: torch would find them by a
forward and a backward of the first microbatch, which the store would take for those of a sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _Action, _PipelineScheduleRuntime
from torchtitan.config import TORCH_DTYPE_MAP, TrainingConfig

from ..lowering.carry import Carrying, Now, Piece
from ..lowering.parts import even
from ..pipeline.ir import Program
from ..pipeline.notation import cells_of
from ..plan.ir import Plan
from ..plan.slices import lengths_of
from ..plan.stages import part
from .seams import split_module
from .sequence_pipeline import PARALLELIZE, Between, carried, program_of


@dataclass(frozen=True, kw_only=True)
class SlicedSchedule:
    """What torchtitan runs: torch's schedule, given each sequence in its subsequences.

    Args:
        cuts: where each subsequence begins and ends.
        carrying: attention of this rank's stages, whose stores are empty after a step.
    """

    inner: Any
    cuts: Sequence[tuple[int, int]]
    carrying: Sequence[Carrying] = ()

    def step(
        self,
        *,
        arg_mbs: Sequence[tuple[torch.Tensor, ...]] | None = None,
        kwarg_mbs: Sequence[Mapping[str, Any]] | None = None,
        target_mbs: Sequence[torch.Tensor] | None = None,
        **options: Any,
    ) -> None:
        """Every forward and backward of a pass; see torch's schedule for what is given."""
        self.inner.step(
            arg_mbs=None if arg_mbs is None else [tuple(self.part(x, i) for x in xs) for xs, i in self.each(arg_mbs)],
            kwarg_mbs=None
            if kwarg_mbs is None
            else [{key: self.part(x, i) for key, x in xs.items()} for xs, i in self.each(kwarg_mbs)],
            target_mbs=None if target_mbs is None else [self.part(x, i) for x, i in self.each(target_mbs)],
            **options,
        )
        for kept in self.carrying:
            assert not kept.store.kept, f"{len(kept.store.kept)} sequences were left in a store of keys"

    def each(self, given: Sequence[Any]) -> list[tuple[Any, int]]:
        """(what is of one sequence, number of the subsequence) in torch's order of microbatches."""
        return [(one, index) for one in given for index in range(len(self.cuts))]

    def part(self, value: Any, index: int) -> Any:
        """A subsequence's tokens of a tensor (B, T, ...); all else is for all of them."""
        start, stop = self.cuts[index]
        return value[:, start:stop] if isinstance(value, torch.Tensor) else value


@dataclass(frozen=True, kw_only=True)
class TorchSequences:
    """A `pipelining_fn` of torchtitan for a plan whose Program torch's pipeline runs."""

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
    ) -> tuple[SlicedSchedule, list[nn.Module], bool, bool]:
        """(schedule, parts of the model on this rank, first stage is here, last stage is here)."""
        plan, program = self.plan, program_of(self.plan)
        mesh, now = parallel_dims.get_mesh("pp"), Now()
        cuts = ends(lengths_of(plan) or even(training.seq_len, program.subsequences))
        words = {key: options[key] for key in PARALLELIZE}
        parallelize = partial(parallelize_fn, parallel_dims=parallel_dims, training=training, **words)
        batch, dtype = training.local_batch_size // program.sequences, TORCH_DTYPE_MAP[training.mixed_precision_param]
        stages: list[PipelineStage] = []
        every: list[Carrying] = []
        for _, index in program.held(mesh.get_local_rank()):
            module = split_module(model, plan.stages[index].modules)
            carrying = carried(part(plan, plan.stages[index]), module, now) if program.subsequences > 1 else ()
            stage = PipelineStage(
                parallelize(module),
                index,
                program.stages,
                device,
                input_args=entering(plan, index, batch, cuts[0][1], dtype),
                output_args=leaving(plan, index, batch, cuts[0][1], dtype),
                group=mesh.get_group(),
            )
            told(stage, program, cuts, now, carrying)
            stages.append(stage)
            every += carrying
        schedule = SlicedSchedule(inner=running(program, stages, loss_fn), cuts=cuts, carrying=every)
        first, last = (any(getattr(stage, which) for stage in stages) for which in ("is_first", "is_last"))
        return schedule, [stage.submod for stage in stages], first, last


def ends(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Where subsequences of one length begin and end."""
    assert len(set(lengths)) == 1, lengths
    return [(index * lengths[0], (index + 1) * lengths[0]) for index in range(len(lengths))]


def running(program: Program, stages: list[PipelineStage], loss_fn: Any) -> _PipelineScheduleRuntime:
    """torch's schedule of the Program's order; a microbatch is a subsequence."""
    schedule = _PipelineScheduleRuntime(
        stages,
        n_microbatches=program.sequences * program.subsequences,
        loss_fn=lambda output, labels, **options: loss_fn(output, labels, **options)[0],
        scale_grads=False,
    )
    rows = {rank: [_Action.from_str(cell) for cell in row] for rank, row in enumerate(cells_of(program))}
    schedule._prepare_schedule_with_comms(rows)
    return schedule


def entering(plan: Plan, stage: int, batch: int, tokens: int, dtype: torch.dtype) -> torch.Tensor:
    """Of the shape and type of what a stage takes on this rank, without memory."""
    if stage == 0:
        return torch.empty((batch, tokens), dtype=torch.int64, device="meta")
    shape = Between(plan=plan, stage=stage, batch=batch)("F", tokens)
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=True)


def leaving(plan: Plan, stage: int, batch: int, tokens: int, dtype: torch.dtype) -> torch.Tensor:
    """Of the shape and type of what a stage gives on this rank, without memory; nobody receives the last one's."""
    last = stage == len(plan.stages) - 1
    shape = (batch, tokens) if last else Between(plan=plan, stage=stage, batch=batch)("B", tokens)
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=True)


def told(
    stage: PipelineStage, program: Program, cuts: Sequence[tuple[int, int]], now: Now, carrying: Sequence[Carrying]
) -> None:
    """The stage's attention knows its subsequence while torch calls the stage, and its store when one is done."""

    def during(call: Callable[..., Any], is_last: Callable[[Mapping[str, Any]], bool]) -> Callable[..., Any]:
        def run(chunk: int, *args: Any, **options: Any) -> Any:
            sequence, index = divmod(chunk, program.subsequences)
            piece = Piece(sequence, index, len(cuts), *cuts[index], cuts[-1][1])
            now.piece = piece
            result = call(chunk, *args, **options)
            now.piece = None
            if is_last(options):
                for each in carrying:
                    each.store.done(piece)
            return result

        return run

    stage.forward_one_chunk = during(stage.forward_one_chunk, lambda options: False)
    stage.backward_one_chunk = during(stage.backward_one_chunk, lambda options: options.get("full_backward", True))
    stage.backward_weight_one_chunk = during(stage.backward_weight_one_chunk, lambda options: True)
