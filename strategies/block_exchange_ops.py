"""How the ranks of a ring share keys and values of the clean stream, and sum their gradients.

Each way hands keys to `use` while it sends: first `local` runs, which needs none of them, then
`use(keys, runs)` for each part that has come, with the runs of tokens that it holds. In the backward
`use` gives the part's gradients instead. Those may be wider than the keys: they are summed so on a rank, and
rounded to the keys' type where they are sent.

Keys and values travel as one tensor (2, B, K, S, H): B sequences, S tokens of a part, K key heads,
H numbers a head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist

from meshlang.plan.blocks import Runs

from .block_layout import length
from .ring_ops import Ring

Use = Callable[[torch.Tensor, Runs], None]
UseBack = Callable[[torch.Tensor, Runs], torch.Tensor]
Local = Callable[[], None]


class Exchange(Protocol):
    """One way to share. `mine` is this rank's part."""

    def forward(self, mine: torch.Tensor, local: Local, use: Use) -> torch.Tensor | None:
        """Give all keys to `use`; what the backward wants of them."""
        ...

    def backward(self, mine: torch.Tensor, kept: torch.Tensor | None, local: Local, use: UseBack) -> torch.Tensor:
        """The gradient of `mine`, summed over the ranks that used it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Alone:
    """This rank has the whole clean stream."""

    runs: Runs

    def forward(self, mine: torch.Tensor, local: Local, use: Use) -> torch.Tensor | None:
        """See Exchange."""
        local()
        use(mine, self.runs)
        return None

    def backward(self, mine: torch.Tensor, kept: torch.Tensor | None, local: Local, use: UseBack) -> torch.Tensor:
        """See Exchange."""
        local()
        return use(mine, self.runs)


def padded(x: torch.Tensor, tokens: int) -> torch.Tensor:
    """`x` (..., S, H) with zeros behind, so that it has so many tokens."""
    more = tokens - x.size(-2)
    return x.contiguous() if more == 0 else torch.nn.functional.pad(x, (0, 0, 0, more))


@dataclass(frozen=True, kw_only=True)
class Gather:
    """All keys at once, in the order of the sequence.

    clean: the runs of each rank of the group, in their order.
    """

    group: dist.ProcessGroup
    clean: tuple[Runs, ...]

    @property
    def most(self) -> int:
        """Tokens of the rank that has most: all send as many."""
        return max(map(length, self.clean))

    def start(self, mine: torch.Tensor) -> tuple[torch.Tensor, dist.Work]:
        """Gather what every rank has."""
        part = padded(mine, self.most)
        ranks, pair = self.group.size(), part.size(0)
        gathered = part.new_empty((ranks * pair, *part.shape[1:]))
        work = dist.all_gather_single(gathered, part, group=self.group, async_op=True)
        assert work is not None
        return gathered.unflatten(0, (ranks, pair)), work

    def start_sum(self, whole: torch.Tensor) -> tuple[torch.Tensor, dist.Work]:
        """Sum the ranks' gradients of all keys, each rank's own for itself."""
        shape = (*whole.shape[:-2], self.most, whole.size(-1))
        parts = whole.new_zeros((self.group.size(), *shape))
        for index, part, tokens in self.places():
            parts[index][..., part, :] = whole[..., tokens, :]
        summed = whole.new_empty(shape)
        work = dist.reduce_scatter_single(summed, parts.flatten(0, 1), group=self.group, async_op=True)
        assert work is not None
        return summed, work

    def places(self) -> list[tuple[int, slice, slice]]:
        """(rank, where in its part, where in the sequence) of each run."""
        found = []
        for index, runs in enumerate(self.clean):
            at = 0
            for start, stop in runs:
                found.append((index, slice(at, at + stop - start), slice(start, stop)))
                at += stop - start
        return found

    def ordered(self, gathered: torch.Tensor) -> torch.Tensor:
        """What was gathered as one sequence."""
        whole = gathered.new_empty((*gathered.shape[1:-2], sum(map(length, self.clean)), gathered.size(-1)))
        for index, part, tokens in self.places():
            whole[..., tokens, :] = gathered[index][..., part, :]
        return whole

    def forward(self, mine: torch.Tensor, local: Local, use: Use) -> torch.Tensor | None:
        """See Exchange."""
        gathered, work = self.start(mine)
        local()
        work.wait()
        whole = self.ordered(gathered)
        use(whole, ((0, whole.size(-2)),))
        return whole

    def backward(self, mine: torch.Tensor, kept: torch.Tensor | None, local: Local, use: UseBack) -> torch.Tensor:
        """See Exchange."""
        assert kept is not None
        summed, work = self.start_sum(use(kept, ((0, kept.size(-2)),)).to(kept.dtype))
        local()
        work.wait()
        return summed[..., : mine.size(-2), :]


@dataclass(frozen=True, kw_only=True)
class Stream:
    """One rank's keys at a time, on a ring; a rank never holds more than two parts besides its own.

    The sum of a part's gradients travels one step behind it, and comes home last.
    """

    ring: Ring
    clean: tuple[Runs, ...]

    @property
    def most(self) -> int:
        """Tokens of the rank that has most: all send as many."""
        return max(map(length, self.clean))

    def forward(self, mine: torch.Tensor, local: Local, use: Use) -> torch.Tensor | None:
        """See Exchange."""

        def see(owner: int, part: torch.Tensor) -> None:
            if owner == self.ring.rank:
                local()
            use(part[..., : length(self.clean[owner]), :], self.clean[owner])

        self.ring.around(padded(mine, self.most), see)

    def backward(self, mine: torch.Tensor, kept: torch.Tensor | None, local: Local, use: UseBack) -> torch.Tensor:
        """See Exchange."""

        def terms(owner: int, part: torch.Tensor) -> torch.Tensor:
            if owner == self.ring.rank:
                local()
            return padded(use(part[..., : length(self.clean[owner]), :], self.clean[owner]), self.most)

        return self.ring.around_back(padded(mine, self.most), terms, mine.dtype)[..., : mine.size(-2), :]


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """The keys within a window of this rank's queries, from the ranks that have them.

    clean: this rank's runs. needed: those that its queries look at. takes, gives: by the other rank of the ring,
    the runs that come from it and those that go to it.
    """

    group: dist.ProcessGroup
    clean: Runs
    needed: Runs
    takes: Mapping[int, Runs]
    gives: Mapping[int, Runs]

    def forward(self, mine: torch.Tensor, local: Local, use: Use) -> torch.Tensor | None:
        """See Exchange."""
        sent = {peer: _pick(mine, self.clean, runs) for peer, runs in self.gives.items()}
        got = {peer: _room(mine, runs) for peer, runs in self.takes.items()}
        works = self._start(sent, got)
        local()
        for work in works:
            work.wait()
        keys = mine.new_empty((*mine.shape[:-2], length(self.needed), mine.size(-1)))
        _put(keys, self.needed, mine, self.clean)
        for peer, runs in self.takes.items():
            _put(keys, self.needed, got[peer], runs)
        use(keys, self.needed)
        return keys

    def backward(self, mine: torch.Tensor, kept: torch.Tensor | None, local: Local, use: UseBack) -> torch.Tensor:
        """See Exchange."""
        assert kept is not None
        whole = use(kept, self.needed)
        sent = {peer: _pick(whole, self.needed, runs).to(mine.dtype) for peer, runs in self.takes.items()}
        got = {peer: _room(mine, runs) for peer, runs in self.gives.items()}
        works = self._start(sent, got)
        local()
        own = _pick(whole, self.needed, self.clean)
        for work in works:
            work.wait()
        for peer, runs in self.gives.items():
            _put(own, self.clean, got[peer], runs, add=True)
        return own

    def _start(self, sent: Mapping[int, torch.Tensor], got: Mapping[int, torch.Tensor]) -> list[Any]:
        ranks = dist.get_process_group_ranks(self.group)
        sends = [dist.P2POp(dist.isend, x, ranks[peer], self.group) for peer, x in sorted(sent.items())]
        receives = [dist.P2POp(dist.irecv, x, ranks[peer], self.group) for peer, x in sorted(got.items())]
        return dist.batch_isend_irecv([*sends, *receives]) if sends or receives else []


def _room(like: torch.Tensor, runs: Runs) -> torch.Tensor:
    return like.new_empty((*like.shape[:-2], length(runs), like.size(-1)))


def _where(held: Runs, runs: Runs) -> list[slice]:
    """Where each of some runs lies among held ones; a run lies in one held run."""
    found, at = [], 0
    starts: list[tuple[int, int, int]] = []
    for start, stop in held:
        starts.append((start, stop, at))
        at += stop - start
    for start, stop in runs:
        low, high, place = next(each for each in starts if each[0] <= start and stop <= each[1])
        assert low <= start < stop <= high
        found.append(slice(place + start - low, place + stop - low))
    return found


def _pick(x: torch.Tensor, held: Runs, runs: Runs) -> torch.Tensor:
    """The tokens of some runs, of those held."""
    parts: Sequence[torch.Tensor] = [x[..., place, :] for place in _where(held, runs)]
    return torch.cat(list(parts), dim=-2)


def _put(whole: torch.Tensor, held: Runs, x: torch.Tensor, runs: Runs, *, add: bool = False) -> None:
    """Write the tokens of some runs, or add them, to where they lie among those held."""
    at = 0
    for place in _where(held, runs):
        part = x[..., at : at + place.stop - place.start, :]
        at += place.stop - place.start
        if add:
            whole[..., place, :] += part
        else:
            whole[..., place, :] = part


def ring_group(mesh_group: dist.ProcessGroup, ring: range) -> dist.ProcessGroup:
    """The ranks of one ring as a group; called on each of them."""
    if len(ring) == mesh_group.size():
        return mesh_group
    ranks = dist.get_process_group_ranks(mesh_group)
    group = dist.new_group([ranks[place] for place in ring], use_local_synchronization=True)
    assert isinstance(group, dist.ProcessGroup)
    return group
