"""`schedule = "sequential"`: one microbatch at a time through all stages and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, final

from meshlang.strategy import Context, Diagnostic, Schedule


@final
@dataclass(frozen=True, kw_only=True)
class Sequential(Schedule):
    """No two ranks of the pipeline ever work at once: what every other schedule is measured against.

    It holds the activations of one microbatch, whatever their number.
    """

    #: torch runs the order that is said below.
    ops: ClassVar[str | None] = "csv"

    microbatches: int = field(metadata={"says": "slices of the batch"})

    def check(self, context: Context) -> Iterator[Diagnostic]:
        """There is a microbatch, and each has the same number of sequences."""
        plan = context.plan
        if self.microbatches < 1:
            yield context.finding("bad-value", f"{self.microbatches} microbatches are none", key="microbatches")
        elif plan.sizes.batch is not None:
            slices = plan.mesh.product(plan.axes_of("data")) * plan.sizes.accumulation * self.microbatches
            if plan.sizes.batch % slices:
                message = f"{plan.sizes.batch} sequences do not divide into {slices} equal slices"
                yield context.finding("schedule-numbers", message, key="microbatches")

    def order(self, context: Context) -> tuple[tuple[str, ...], ...]:
        """Forward and backward of each microbatch in turn, one stage a rank."""
        ranks = context.plan.mesh.product(context.plan.axes_of("pipeline"))
        turns = range(self.microbatches)
        return tuple(tuple(f"{rank}{kind}{turn}" for turn in turns for kind in "FB") for rank in range(ranks))
