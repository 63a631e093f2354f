"""What schedules share that torch has no word for: they run on our own executor of Programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from meshlang.diagnostics import counted
from meshlang.pipeline.costs import Costs
from meshlang.pipeline.late_weights import late_weights
from meshlang.plan.slices import attention_share
from meshlang.strategy import Context, Diagnostic, Program

from .numbered import PIPELINE_AXIS, NumberedSchedule, numbers

#: What runs a Program: any schedule of one or two replicas, of whole sequences or of subsequences.
EXECUTOR = "meshlang.runtime.sequence_pipeline"


def costs_of(lengths: tuple[int, ...]) -> Costs:
    """Times in proportion to tokens."""
    return Costs(lengths=lengths if len(set(lengths)) > 1 else ())


def held_costs(context: Context, lengths: tuple[int, ...]) -> Costs:
    """The same, and attention where subsequences differ, as a plan's timeline has it."""
    costs = costs_of(lengths)
    return replace(costs, attention=attention_share(context.plan)) if costs.lengths else costs


def in_two(program: Program, weights: str, lengths: tuple[int, ...]) -> Program:
    """The Program, with gradients of weights put off where the spec does not say "together"."""
    return program if weights == "together" else late_weights(program, costs_of(lengths))


def ranks_of(context: Context) -> int:
    """Along the pipeline axis."""
    return context.plan.mesh.size(PIPELINE_AXIS)


def mirrored(context: Context) -> Iterator[Diagnostic]:
    """Two replicas meet in the middle: an even number of ranks, or one, which is no pipeline."""
    ranks, name = ranks_of(context), context.table.name.value
    if ranks > 1 and ranks % 2:
        message = (
            f"`{name}` has two replicas, one the mirror image of the other, and `{PIPELINE_AXIS}` = {ranks} is odd"
        )
        yield context.finding("schedule-numbers", message, key="schedule")


def a_multiple(schedule: NumberedSchedule, context: Context, of: int, why: str, least: int = 0) -> Iterator[Diagnostic]:
    """So many microbatches, or a multiple of them, and at least `least`."""
    count = schedule.microbatches
    if ranks_of(context) == 1 or (count % of == 0 and count >= least):
        return
    below, above = count // of * of, -(-max(count, least) // of) * of
    allowed = sorted({number for number in (below, above) if number >= max(of, least)})
    message = f"{counted(count, 'microbatch')}, and `{context.table.name.value}` {why}"
    yield numbers(context, "microbatches", message, allowed=allowed)
