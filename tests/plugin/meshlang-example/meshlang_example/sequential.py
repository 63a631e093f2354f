"""`schedule = "sequential"`: one microbatch at a time through all stages and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import final

from meshlang.strategy import Context, Diagnostic, Schedule


@final
@dataclass(frozen=True, kw_only=True)
class Sequential(Schedule):
    """No two ranks of the pipeline ever work at once: what every other schedule is measured against."""

    microbatches: int = field(metadata={"says": "slices of the batch"})

    def check(self, context: Context) -> Iterator[Diagnostic]:
        """There is a microbatch."""
        if self.microbatches < 1:
            yield context.finding("bad-value", f"{self.microbatches} microbatches are none", key="microbatches")
