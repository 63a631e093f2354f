"""A ring of ranks, on which each rank's part comes by all others, one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

#: (owner of the part, the part) -> looks at it.
See = Callable[[int, torch.Tensor], None]

#: (owner of the part, the part) -> this rank's terms of its gradient, which may be changed.
Terms = Callable[[int, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Ring:
    """This rank among the ranks of an axis: `after` and `before` are its neighbours' global ranks."""

    group: dist.ProcessGroup
    size: int
    rank: int
    after: int
    before: int

    @classmethod
    def of(cls, group: dist.ProcessGroup) -> Ring:
        """The ranks of a group in their order, the last one beside the first."""
        size, rank = group.size(), group.rank()
        after, before = (dist.get_global_rank(group, (rank + step) % size) for step in (1, -1))
        return cls(group=group, size=size, rank=rank, after=after, before=before)

    def pass_on(self, tensors: Sequence[torch.Tensor]) -> Passing:
        """Start to send these to the rank after, and to receive as many of the same shapes from the one before."""
        got = [torch.empty_like(tensor) for tensor in tensors]
        sends = [dist.P2POp(dist.isend, tensor, self.after, self.group) for tensor in tensors]
        receives = [dist.P2POp(dist.irecv, tensor, self.before, self.group) for tensor in got]
        return Passing(got=got, works=dist.batch_isend_irecv([*sends, *receives]) if tensors else [])

    def around(self, part: torch.Tensor, see: See) -> None:
        """Each rank's part comes by, this rank's first: seen while the next one is on its way, in P - 1 messages."""
        for step in range(self.size):
            passing = self.pass_on([part] if step < self.size - 1 else [])
            see((self.rank - step) % self.size, part)
            part = next(iter(passing.wait()), part)
            del passing  # holds what was sent

    def around_back(self, part: torch.Tensor, terms: Terms, sent: torch.dtype | None = None) -> torch.Tensor:
        """The sum of all ranks' terms for this rank's part, as wide as `terms` gives them.

        Parts come by as in `around`. The sum of a part's terms travels with it, one step behind: it starts at
        the rank after the owner's, and comes home from the one before, where the owner adds its own term. So
        P - 1 messages of either kind are sent; sums travel as `sent`, or as they are.
        """
        travelling, own = None, None
        for step in range(self.size):
            last = step == self.size - 1
            going = [] if travelling is None else [travelling.to(sent or travelling.dtype)]
            passing = self.pass_on(going if last else [*going, part])
            sums = terms((self.rank - step) % self.size, part)
            got = passing.wait()
            if going:
                sums += got[0]
            if not last:
                part = got[-1]
            own, travelling = (sums, None) if step == 0 else (own, sums)
            del passing, going, got  # hold what was sent
        assert own is not None
        if travelling is not None:
            own += self.pass_on([travelling.to(sent or travelling.dtype)]).wait()[0]
        return own


@dataclass(frozen=True, kw_only=True)
class Passing:
    """Messages on their way."""

    got: list[torch.Tensor]
    works: list[dist.Work]

    def wait(self) -> list[torch.Tensor]:
        """What has come from the rank before; what was sent may be written again."""
        for work in self.works:
            work.wait()
        return self.got
