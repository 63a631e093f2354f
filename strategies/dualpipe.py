"""`schedule = "dualpipe"`: two replicas from both ends, a forward of one beside a backward of the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

from meshlang.pipeline.two_replicas import dualpipe
from meshlang.strategy import Context, Diagnostic, Program

from .executed import EXECUTOR, a_multiple, mirrored, ranks_of
from .numbered import PIPELINE_AXIS, NumberedSchedule, exactly, keeps_weights


@final
@dataclass(frozen=True, kw_only=True)
class DualPipe(NumberedSchedule):
    """One stage of each replica a rank; gradients of weights in the gaps (DeepSeek-AI 2024)."""

    ops: ClassVar[str | None] = EXECUTOR

    def laws(self, context: Context) -> Iterator[Diagnostic]:
        """An even number of ranks; as many microbatches for each way as there are ranks; weights are kept."""
        yield from exactly(self, context, 1)
        yield from mirrored(context)
        ranks = ranks_of(context)
        least = f"takes an even number of them, at least 2 `{PIPELINE_AXIS}` = {2 * ranks}"
        yield from a_multiple(self, context, 2, least, 2 * ranks)
        yield from keeps_weights(context)

    def program(self, context: Context) -> Program | None:
        """DualPipeV on each half of the ranks, joined."""
        return dualpipe(ranks_of(context), self.microbatches)
