"""`schedule = "interleaved_1f1b"`: one forward, one backward, several stages a rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, final

from meshlang.pipeline.orders import Order, interleaved
from meshlang.strategy import Context, Diagnostic

from .numbered import NumberedSchedule, numbers_of, rounds


@final
@dataclass(frozen=True, kw_only=True)
class Interleaved1F1B(NumberedSchedule):
    """Stages loop over the ranks, 2 on each unless the spec says otherwise (Narayanan et al. 2021).

    torch asks less than the paper: microbatches need not be a multiple of `pp`, only of the
    number of rounds.
    """

    ops: ClassVar[str | None] = "Interleaved1F1B"
    usual_chunks: ClassVar[int] = 2

    def laws(self, context: Context) -> Iterable[Diagnostic]:
        """Rounds of equal length."""
        return rounds(self, context)

    def order(self, context: Context) -> Order:
        """As torch runs it."""
        return interleaved(*numbers_of(self, context))
