"""`schedule = "chimera"`: two replicas from both ends, one stage of each a rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

from meshlang.pipeline.two_replicas import chimera
from meshlang.strategy import Context, Diagnostic, Program

from .executed import EXECUTOR, mirrored, ranks_of
from .numbered import NumberedSchedule, exactly


@final
@dataclass(frozen=True, kw_only=True)
class Chimera(NumberedSchedule):
    """Units of `pp` microbatches, half of them each way (Li and Hoefler 2021)."""

    ops: ClassVar[str | None] = EXECUTOR

    def laws(self, context: Context) -> Iterator[Diagnostic]:
        """One stage of each replica a rank, on an even number of ranks."""
        yield from exactly(self, context, 1)
        yield from mirrored(context)

    def program(self, context: Context) -> Program | None:
        """Units concatenated."""
        return chimera(ranks_of(context), self.microbatches)
