"""`schedule = "seq1f1b"`: one forward, one backward, over subsequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from meshlang.pipeline.sequence_orders import seq1f1b
from meshlang.strategy import Context, Diagnostic, Program

from .executed import ranks_of
from .numbered import exactly
from .sliced import SlicedSchedule, sliced


@final
@dataclass(frozen=True, kw_only=True)
class Seq1F1B(SlicedSchedule):
    """One stage a rank; subsequences go through one after the other (Sun et al. 2024)."""

    def laws(self, context: Context) -> Iterator[Diagnostic]:
        """One stage a rank; subsequences that add up."""
        yield from exactly(self, context, 1)
        yield from sliced(self, context)

    def program(self, context: Context) -> Program | None:
        """`pp` - 1 - rank + subsequences - 1 forwards ahead, then in turn."""
        return seq1f1b(ranks_of(context), self.microbatches, self.subsequences)
