"""`schedule = "gpipe"`: the forwards of all microbatches, then all backwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, final

from meshlang.pipeline.orders import Order, gpipe
from meshlang.strategy import Context, Diagnostic

from .numbered import NumberedSchedule, exactly, numbers_of


@final
@dataclass(frozen=True, kw_only=True)
class GPipe(NumberedSchedule):
    """One stage a rank; each rank holds the activations of all microbatches (Huang et al. 2019)."""

    ops: ClassVar[str | None] = "GPipe"

    def laws(self, context: Context) -> Iterable[Diagnostic]:
        """One stage a rank."""
        return exactly(self, context, 1)

    def order(self, context: Context) -> Order:
        """As torch runs it."""
        ranks, _, microbatches = numbers_of(self, context)
        return gpipe(ranks, microbatches)
