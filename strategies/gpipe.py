"""`schedule = "gpipe"`: the forwards of all microbatches, then all backwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, final

from meshlang.strategy import Context, Diagnostic

from .torch_schedule import TorchSchedule, exactly


@final
@dataclass(frozen=True, kw_only=True)
class GPipe(TorchSchedule):
    """One stage a rank; each rank holds the activations of all microbatches (Huang et al. 2019).

    Planned and checked; pipelines are not yet lowered.
    """

    ops: ClassVar[str | None] = "GPipe"

    def laws(self, context: Context) -> Iterable[Diagnostic]:
        """One stage a rank."""
        return exactly(self, context, 1)
