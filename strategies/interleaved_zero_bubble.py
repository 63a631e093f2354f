"""`schedule = "interleaved_zero_bubble"`: gradients of weights fill the gaps of interleaved stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

from meshlang.pipeline.orders import Order, interleaved_zero_bubble
from meshlang.strategy import Context, Diagnostic

from .numbered import NumberedSchedule, keeps_weights, numbers_of, rounds


@final
@dataclass(frozen=True, kw_only=True)
class InterleavedZeroBubble(NumberedSchedule):
    """Stages loop over the ranks, 2 on each unless the spec says otherwise (ZB1P, Qi et al. 2023)."""

    ops: ClassVar[str | None] = "InterleavedZeroBubble"
    usual_chunks: ClassVar[int] = 2

    def laws(self, context: Context) -> Iterator[Diagnostic]:
        """Rounds of equal length; weights are kept for their gradients."""
        yield from rounds(self, context)
        yield from keeps_weights(context)

    def order(self, context: Context) -> Order:
        """As torch runs it."""
        return interleaved_zero_bubble(*numbers_of(self, context))
