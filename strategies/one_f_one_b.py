"""`schedule = "1f1b"`: one forward, one backward, once the pipeline is full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

from meshlang.pipeline.orders import Order, one_f_one_b
from meshlang.strategy import Context, Diagnostic

from .numbered import NumberedSchedule, at_least, exactly, numbers_of


@final
@dataclass(frozen=True, kw_only=True)
class OneFOneB(NumberedSchedule):
    """One stage a rank; a rank holds the activations of at most as many microbatches as there are stages.

    Of PipeDream-Flush (Narayanan et al. 2021).
    """

    ops: ClassVar[str | None] = "1F1B"

    def laws(self, context: Context) -> Iterator[Diagnostic]:
        """One stage a rank, and a microbatch for each stage."""
        yield from list(exactly(self, context, 1)) or at_least(self, context)

    def order(self, context: Context) -> Order:
        """As torch runs it."""
        ranks, _, microbatches = numbers_of(self, context)
        return one_f_one_b(ranks, microbatches)
