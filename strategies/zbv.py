"""`schedule = "zbv"`: two stages a rank in the shape of a V, gradients of weights in the gaps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, final

from meshlang.pipeline.orders import Order
from meshlang.pipeline.v_orders import zbv
from meshlang.strategy import Context, Diagnostic

from .numbered import NumberedSchedule, exactly, keeps_weights, numbers_of


@final
@dataclass(frozen=True, kw_only=True)
class ZBV(NumberedSchedule):
    """Rank r has the stages r and 2 pp - 1 - r: the first rank also has the last stage (Qi et al. 2023, section 6)."""

    ops: ClassVar[str | None] = "ZBVZeroBubble"
    placement: ClassVar[Literal["loop", "v"]] = "v"
    usual_chunks: ClassVar[int] = 2

    def laws(self, context: Context) -> Iterator[Diagnostic]:
        """Two stages a rank; weights are kept for their gradients."""
        yield from exactly(self, context, 2)
        yield from keeps_weights(context)

    def order(self, context: Context) -> Order:
        """As torch runs it."""
        ranks, _, microbatches = numbers_of(self, context)
        return zbv(ranks, microbatches)
