"""`schedule = "seq1f1b_interleaved"`: Seq1F1B with several stages a rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

from meshlang.pipeline.sequence_orders import seq1f1b_interleaved
from meshlang.strategy import Context, Diagnostic, Program

from .numbered import numbers_of
from .sliced import SlicedSchedule, sliced


@final
@dataclass(frozen=True, kw_only=True)
class Seq1F1BInterleaved(SlicedSchedule):
    """Stages loop over the ranks, 2 on each unless the spec says otherwise (Sun et al. 2024, section 3.3)."""

    usual_chunks: ClassVar[int] = 2

    def laws(self, context: Context) -> Iterator[Diagnostic]:
        """Subsequences that add up."""
        return sliced(self, context)

    def program(self, context: Context) -> Program | None:
        """Units of `pp` subsequences go through one stage after the other of a rank."""
        return seq1f1b_interleaved(*numbers_of(self, context), self.subsequences)
