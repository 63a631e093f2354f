"""On a rank: whether the run ends after this step, with one answer on all ranks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from . import progress
from .interrupt import asked
from .recipe import JOB, Job


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """Asks all ranks after each step: a signal may be seen by one rank before a step's end and by others after.

    Args:
        group: all ranks, over gloo: a flag on the host, so that no device is waited for.
    """

    here: Path
    group: dist.ProcessGroup | None

    @classmethod
    def of_launch(cls) -> Stopping | None:
        """Where this process is a rank of a launch that ends so; all ranks call it."""
        here = progress.folder()
        if here is None or Job.read(os.environ[JOB]).on_interrupt != "checkpoint":
            return None
        if not dist.is_initialized():
            return cls(here=here, group=None)
        group = dist.new_group(backend="gloo")
        assert isinstance(group, dist.ProcessGroup)
        return cls(here=here, group=group)

    def agreed(self) -> int:
        """The signal after which all ranks stop now; 0: they go on."""
        mine = asked(self.here) or asked(self.here, f"-{progress.my_rank()}")
        if self.group is None:
            return mine
        number = torch.tensor([mine], dtype=torch.int64)
        dist.all_reduce(number, op=dist.ReduceOp.MAX, group=self.group)
        return int(number)
