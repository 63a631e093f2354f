"""`schedule = "dualpipev"`: two stages a rank in the shape of a V, a forward and a backward at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, final

from meshlang.pipeline.orders import Order
from meshlang.pipeline.v_orders import dualpipev
from meshlang.strategy import Context, Diagnostic

from .numbered import NumberedSchedule, at_least, exactly, keeps_weights, numbers_of


@final
@dataclass(frozen=True, kw_only=True)
class DualPipeV(NumberedSchedule):
    """Rank r has the stages r and 2 pp - 1 - r (the "cut in half" of DualPipe, DeepSeek-AI 2024)."""

    ops: ClassVar[str | None] = "DualPipeV"
    placement: ClassVar[Literal["loop", "v"]] = "v"
    usual_chunks: ClassVar[int] = 2

    def laws(self, context: Context) -> Iterator[Diagnostic]:
        """Two stages a rank, a microbatch for each stage; weights are kept for their gradients."""
        yield from list(exactly(self, context, 2)) or at_least(self, context)
        yield from keeps_weights(context)

    def order(self, context: Context) -> Order:
        """As torch runs it."""
        ranks, _, microbatches = numbers_of(self, context)
        return dualpipev(ranks, microbatches)
