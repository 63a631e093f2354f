"""What schedules share that torch has no word for: they run on our own executor of Programs."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from meshlang.diagnostics import counted
from meshlang.pipeline.late_weights import late_weights
from meshlang.strategy import Context, Diagnostic, Program

from .numbered import PIPELINE_AXIS, NumberedSchedule, numbers

#: What runs a Program: any schedule of one or two replicas, of whole sequences or of subsequences.
EXECUTOR = "meshlang.runtime.sequence_pipeline"


def in_two(program: Program, weights: str) -> Program:
    """The Program, with gradients of weights put off where the spec says "late"."""
    return late_weights(program) if weights == "late" else program


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


def sliced(schedule: NumberedSchedule, context: Context) -> Iterator[Diagnostic]:
    """Subsequences are equal, on each rank that has a part of them, and no strategy looks across ranks for keys."""
    plan, parts = context.plan, schedule.subsequences
    if parts == 1:
        return
    rows = {names for edge in plan.edges for names in edge.names if names[0] == "seq" and len(names) > 1}
    if rows:
        text = " and ".join(f"({' '.join(names)})" for names in sorted(rows))
        message = f"`{plan.model}` has rows of {text}, and slices are of a sequence with one row a token"
        yield numbers(context, "subsequences", message, allowed=[1])
        return
    cut = [axis for axis in plan.axes_of("context") if plan.mesh.size(axis) > 1]
    if cut:
        message = f"`{cut[0]}` cuts each sequence too, and attention over it needs whole sequences, not {parts} slices"
        yield numbers(context, "subsequences", message, allowed=[1])
    inner = prod(plan.mesh.size(axis) for axis in _tensor_cuts(context))
    seq = plan.sizes.seq
    if seq is not None and seq % (parts * inner):
        over = f", each over {inner} ranks" if inner > 1 else ""
        message = f"`seq` = {seq} does not divide into {parts} equal subsequences{over}"
        fits = [n for n in range(1, min(seq, 1024) + 1) if seq % (n * inner) == 0]
        near = [*[n for n in fits if n < parts][-2:], *[n for n in fits if n > parts][:2]]
        yield numbers(context, "subsequences", message, allowed=near)


def _tensor_cuts(context: Context) -> list[str]:
    """Tensor axes that cut the sequence of some value between modules."""
    plan = context.plan
    cuts = {
        axis
        for edge in plan.edges
        for names, axes in zip(edge.names, edge.dst.dims, strict=True)
        if names[0] == "seq"
        for axis in axes
    }
    return [axis for axis in plan.axes_of("tensor") if axis in cuts]
