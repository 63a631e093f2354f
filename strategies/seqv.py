"""`schedule = "seqv"`: subsequences on stages that go to the last rank and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

from meshlang.pipeline.zigzag import seqv
from meshlang.strategy import Context, Diagnostic, Program

from .executed import in_two, ranks_of
from .numbered import keeps_weights, numbers, numbers_of
from .sliced import SlicedSchedule, sliced


@final
@dataclass(frozen=True, kw_only=True)
class SeqV(SlicedSchedule):
    """One replica of BSIPipe: a zig-zag of an even number of stages a rank, the first and last of them on rank 0.

    On half the ranks, beside data parallel 2, it has the same timeline and holds as many parameters.

    Attributes:
        weights: their gradients are computed with those of inputs, or later, where a rank would wait.
    """

    placement: ClassVar[Literal["loop", "v"]] = "v"
    usual_chunks: ClassVar[int] = 2

    weights: Literal["together", "late"] = field(
        default="together", metadata={"says": "when gradients of weights are computed"}
    )

    def laws(self, context: Context) -> Iterator[Diagnostic]:
        """As many stages there as back; subsequences that add up."""
        each = self.stages_per_rank(context)
        if each % 2 and ranks_of(context) > 1:
            message = f"`{context.table.name.value}` goes there and back, and {each} stages a rank are odd"
            yield numbers(context, "chunks" if self.chunks is not None else "split", message, allowed=[each + 1])
        yield from sliced(self, context)
        if self.weights == "late":
            yield from keeps_weights(context)

    def program(self, context: Context) -> Program | None:
        """By slot."""
        return in_two(seqv(*numbers_of(self, context), self.subsequences), self.weights, self.tokens(context))
