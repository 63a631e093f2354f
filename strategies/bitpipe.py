"""`schedule = "bitpipe"`: two zig-zags from both ends, two stages of each a rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

from meshlang.pipeline.two_replicas import bitpipe
from meshlang.strategy import Context, Diagnostic, Program

from .executed import EXECUTOR, a_multiple, mirrored, ranks_of
from .numbered import PIPELINE_AXIS, NumberedSchedule, exactly


@final
@dataclass(frozen=True, kw_only=True)
class BitPipe(NumberedSchedule):
    """Units of `pp` microbatches, half of them each way (BitPipe, arXiv 2410.19367)."""

    ops: ClassVar[str | None] = EXECUTOR
    usual_chunks: ClassVar[int] = 2

    def laws(self, context: Context) -> Iterator[Diagnostic]:
        """Two stages of each replica a rank, on an even number of ranks; whole units."""
        yield from exactly(self, context, 2)
        yield from mirrored(context)
        ranks = ranks_of(context)
        yield from a_multiple(self, context, ranks, f"runs units of `{PIPELINE_AXIS}` = {ranks}")

    def program(self, context: Context) -> Program | None:
        """As its published program orders them."""
        return bitpipe(ranks_of(context), self.microbatches)
