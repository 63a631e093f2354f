"""`schedule = "seqv"`: subsequences on stages that go to the last rank and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, final

from meshlang.diagnostics import Edit, Help
from meshlang.pipeline.held import late
from meshlang.pipeline.zigzag import seqv
from meshlang.strategy import Context, Diagnostic, Program

from .executed import held_costs, in_two, ranks_of
from .numbered import keeps_weights, numbers, numbers_of
from .sliced import SlicedSchedule, sliced


@final
@dataclass(frozen=True, kw_only=True)
class SeqV(SlicedSchedule):
    """One replica of BSIPipe: a zig-zag of an even number of stages a rank, the first and last of them on rank 0.

    On half the ranks, beside data parallel 2, it has the same timeline and holds as many parameters.

    Attributes:
        weights: their gradients are computed with those of inputs, or later, where a rank would wait;
            "held" is "late", and with any number of subsequences up to that of ranks holds no more than
            Seq1F1B, and as much where that makes it faster.
        runtime: our executor; or torch's pipeline, whose microbatches are then subsequences of equal length.
    """

    placement: ClassVar[Literal["loop", "v"]] = "v"
    usual_chunks: ClassVar[int] = 2

    weights: Literal["together", "late", "held"] = field(
        default="together", metadata={"says": "when gradients of weights are computed"}
    )

    runtime: Literal["own", "torch"] = field(
        default="own", metadata={"says": "what runs it: our executor, or torch's pipeline"}
    )

    def laws(self, context: Context) -> Iterator[Diagnostic]:
        """As many stages there as back; subsequences that add up."""
        each = self.stages_per_rank(context)
        if each % 2 and ranks_of(context) > 1:
            message = f"`{context.table.name.value}` goes there and back, and {each} stages a rank are odd"
            yield numbers(context, "chunks" if self.chunks is not None else "split", message, allowed=[each + 1])
        yield from sliced(self, context)
        yield from _alike(self, context)
        if self.weights != "together":
            yield from keeps_weights(context)

    def program(self, context: Context) -> Program | None:
        """By slot, or held by what has arrived."""
        counts, tokens = (*numbers_of(self, context), self.subsequences), self.tokens(context)
        if self.weights == "held":
            return late(*counts, replicas=1, hold=True, costs=held_costs(context, tokens))
        return in_two(seqv(*counts), self.weights, tokens)


def _alike(schedule: SeqV, context: Context) -> Iterator[Diagnostic]:
    """torch's pipeline receives each message in a buffer of one shape."""
    lengths = schedule.lengths if isinstance(schedule.lengths, tuple) else ()
    if schedule.runtime != "torch" or (schedule.lengths != "equal-flops" and len(set(lengths)) < 2):
        return
    message = "torch's pipeline has one shape for all messages, and `lengths` makes subsequences that differ"
    finding = context.finding("schedule-numbers", message, key="runtime")
    written = context.table.fields["runtime"]
    yield replace(finding, help=(Help(text='`runtime` may be "own"', edits=(Edit(span=written.span, text='"own"'),)),))
