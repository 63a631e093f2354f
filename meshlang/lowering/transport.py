"""How messages travel between the ranks of a pipeline: a process group for each directed edge.

One communicator carries one direction of one pair of ranks. So the order of its messages is the
sender's, no direction waits for another, and receives can be posted before anyone asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist


class LateError(Exception):
    """A message did not come, or did not go, in time; the reason is what the transport says."""


class Transport(Protocol):
    """What the executor asks of a transport; handles are the transport's own."""

    def post(self, source: int, buffer: torch.Tensor) -> Any:
        """Be ready to receive the next message of a rank into a buffer."""
        ...

    def wait(self, handle: Any) -> None:
        """Return when the message is in its buffer, or is sent.

        Raises:
            LateError: it took too long, or the other rank has gone.
        """
        ...

    def send(self, target: int, value: torch.Tensor) -> Any:
        """Send without waiting; the value is kept unchanged until the handle was waited for."""
        ...


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Real process groups.

    Args:
        groups: (from, to) -> the group of that edge, both by their place on the pipeline's axis.
        ranks: place on the axis -> global rank.
        rank: the own place.
        limit: how long one wait may take; None leaves it to NCCL, whose waits hold up no process.
    """

    groups: Mapping[tuple[int, int], dist.ProcessGroup]
    ranks: Sequence[int]
    rank: int
    limit: timedelta | None

    def post(self, source: int, buffer: torch.Tensor) -> dist.Work:
        """See Transport."""
        work = dist.irecv(buffer, src=self.ranks[source], group=self.groups[source, self.rank])
        assert work is not None
        return work

    def wait(self, handle: dist.Work) -> None:
        """See Transport."""
        try:
            handle.wait(self.limit) if self.limit is not None else handle.wait()
        except RuntimeError as error:
            raise LateError(str(error)) from error

    def send(self, target: int, value: torch.Tensor) -> dist.Work:
        """See Transport."""
        work = dist.isend(value, dst=self.ranks[target], group=self.groups[self.rank, target])
        assert work is not None
        return work


def edge_groups(
    edges: Sequence[tuple[int, int]], pipelines: Sequence[Sequence[int]]
) -> dict[tuple[int, int], dist.ProcessGroup]:
    """A group for each directed edge of this rank's pipeline, by places on the axis.

    Every rank of the world calls it with the same arguments. torch could let only the members of a
    group meet, but names it after how many groups a rank has made before, and those counts differ.

    Args:
        pipelines: the global ranks of each, by place on the axis.
    """
    here, made = dist.get_rank(), dict[tuple[int, int], dist.ProcessGroup]()
    for ranks in pipelines:
        for edge in edges:
            group = dist.new_group([ranks[place] for place in edge])
            if here in (ranks[edge[0]], ranks[edge[1]]):
                assert isinstance(group, dist.ProcessGroup)
                made[edge] = group
    mine = next(ranks for ranks in pipelines if here in ranks)
    for edge, group in made.items():
        if dist.get_backend(group) == "nccl":
            _touch(group, mine[edge[0]], mine[edge[1]])
    return made


def _touch(group: dist.ProcessGroup, source: int, target: int) -> None:
    """One message: NCCL builds a communicator at its first use, and all ranks have to in one order."""
    value = torch.zeros(1, device="cuda")
    if dist.get_rank() == source:
        dist.send(value, dst=target, group=group)
    else:
        dist.recv(value, src=source, group=group)
