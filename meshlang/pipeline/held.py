"""Zig-zags that hold no more than a limit (`limits`): Seq1F1B's peak, for most numbers.

The closed form (`zigzag`) lets units follow each other without a hole. Where a sequence straddles two
units its last forward is a unit later, and so is every backward, and more is held. So there no operation
has a slot. Ranks, stages and the order of each stage are the same, backwards are in two (`late_weights`),
and what a rank does next follows from what has reached it and from how much it holds:

    an input gradient, of the lowest stage first: it is nearest to where its activations end
    unless two in a row have been, and a forward waits: then that, and where the rank is full,
        gradients of weights that were put off make room for it
    else a forward, of the highest stage first, where the rank is not full
    else gradients of weights, the oldest first

Ranks that are full of forwards could wait for each other. Where they do, the order is made again with
room kept on each rank for all forwards that the oldest sequence there still lacks: that sequence can
always go on, since the younger ones on a rank never hold more than the limit less a whole sequence.

Nothing waits where F = I = W. Messages are needed as soon as they come, though, and a rank that is full
cannot go ahead while it waits for one: where input gradients take longer than forwards, slots are faster,
with one to spare for each message. Those of units of whole sequences hold no more (`zigzag.spaced`), and
gradients of weights fill those that are empty. So costs choose.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush

from .costs import Costs
from .ir import Host, Op, Program
from .late_weights import late_weights
from .limits import are_whole, limit, room
from .simulate import times_of
from .zigzag import bsipipe, rank_of, seqv, spaced

#: Input gradients in a row, after which a forward that waits is due.
IN_A_ROW = 2


def late(
    ranks: int,
    chunks: int,
    sequences: int,
    subsequences: int,
    *,
    replicas: int,
    hold: bool = False,
    costs: Costs | None = None,
) -> Program:
    """BSIPipe, or with one replica SeqV, whose gradients of weights are put off.

    Args:
        hold: no rank goes above `limits.limit`, or `room` where subsequences differ; else none above what it holds
            with whole backwards.
    """
    make = bsipipe if replicas == 2 else seqv
    numbers, costs = (ranks, chunks, sequences, subsequences), costs or Costs()
    if not hold:
        return late_weights(make(*numbers), costs)
    if are_whole(ranks, subsequences, replicas=replicas):
        return filled(make(*numbers), costs)
    if subsequences > ranks // replicas or _nothing_waits(chunks * ranks, subsequences, costs, ranks):
        return held(*numbers, replicas=replicas, costs=costs)
    return filled(spaced(*numbers, replicas=replicas), costs)


def filled(program: Program, costs: Costs | None = None) -> Program:
    """A zig-zag by slot with backwards in two, whose ranks put off gradients of weights up to `room`."""
    chunks, costs = program.stages // program.ranks, costs or Costs()
    most = room(program.ranks, chunks, program.subsequences, replicas=program.replicas, costs=costs)
    return late_weights(program, costs, room=most)


def _nothing_waits(stages: int, subsequences: int, costs: Costs, ranks: int) -> bool:
    """Whether input gradients take no longer than forwards, and messages no time."""
    times = times_of(stages, subsequences, costs, ranks)
    longer = any(back > there for back, there in zip(times["I", False], times["F", False], strict=True))
    return not longer and costs.least_link == (0.0, 0.0)


def held(
    ranks: int, chunks: int, sequences: int, subsequences: int, *, replicas: int, costs: Costs | None = None
) -> Program:
    """The same by list scheduling, no rank above `limit`."""
    stages = chunks * ranks
    shell = Program(
        ranks=ranks,
        stages=stages,
        replicas=replicas,
        sequences=sequences,
        subsequences=subsequences,
        hosts=tuple(Host(r, k, rank_of(k, ranks, r)) for r in range(replicas) for k in range(stages)),
        order=(),
    )
    costs = costs or Costs()
    most = limit(ranks, chunks, subsequences, replicas=replicas, shares=costs.shares)
    for kept in (False, True):
        rows = _Run(shell, costs, most, kept).rows()
        if rows is not None:
            return replace(shell, order=rows)
    raise AssertionError("a deadlock")


@dataclass
class _Rank:
    """What a rank could do, what it put off, and what it did.

    Attributes:
        forwards, backwards: heaps of what has arrived; numbers of `_Run`.
        live: forwards whose activations it holds.
        in_a_row: input gradients since its last forward.
        lacks: for each sequence the forwards that are to come here.
        oldest: the first sequence that lacks some.
    """

    lacks: list[int]
    forwards: list[int] = field(default_factory=list[int])
    backwards: list[int] = field(default_factory=list[int])
    late: deque[int] = field(default_factory=deque[int])
    row: list[Op] = field(default_factory=list[Op])
    live: int = 0
    in_a_row: int = 0
    oldest: int = 0
    busy: bool = False


class _Run:
    """All ranks in the order of time.

    An operation is a number, its rank among those of its kind: of forwards the highest stage is first,
    of input gradients the lowest, then the subsequence that is earlier in the replica's order there or back.
    """

    def __init__(self, shell: Program, costs: Costs, most: int, kept: bool) -> None:
        self.shell, self.most, self.kept = shell, most, kept
        self.parts, self.last = shell.subsequences, shell.stages - 1
        self.ways = shell.replicas
        self.each = shell.sequences // self.ways * self.parts
        self.host = [[shell.host[r, k] for k in range(shell.stages)] for r in range(self.ways)]
        chunks = shell.stages // shell.ranks
        self.ranks = [_Rank([chunks * self.parts] * shell.sequences) for _ in range(shell.ranks)]
        self.times = times_of(shell.stages, shell.subsequences, costs, shell.ranks)
        self.events: list[tuple[float, int, str, int]] = []

    def rows(self) -> tuple[tuple[Op, ...], ...] | None:
        """The order of each rank; None where ranks wait for each other."""
        for replica in range(self.ways):
            self.arrives("F", replica, 0, 0)
        awake = set(range(len(self.ranks)))
        now = 0.0
        while True:
            for rank in sorted(awake):
                if not self.ranks[rank].busy:
                    self.start(rank, now)
            if not self.events:
                break
            now, awake = self.events[0][0], set()
            while self.events and self.events[0][0] <= now + 1e-9:
                _, rank, kind, number = heappop(self.events)
                self.ranks[rank].busy = False
                awake.add(rank)
                awake |= self.done(kind, number)
        done = all(each.oldest == self.shell.sequences and not each.backwards and not each.live for each in self.ranks)
        return tuple(tuple(each.row) for each in self.ranks) if done else None

    def arrives(self, kind: str, replica: int, stage: int, x: int) -> int:
        """An operation can run; gives its rank. `x` counts subsequences in the order of the kind."""
        rank = self.host[replica][stage]
        place = self.last - stage if kind == "F" else stage
        heap = self.ranks[rank].forwards if kind == "F" else self.ranks[rank].backwards
        heappush(heap, (place * self.each + x) * self.ways + replica)
        return rank

    def read(self, kind: str, number: int) -> tuple[int, int, int]:
        """(replica, stage, place of the subsequence in the order of the kind) of a number."""
        rest, replica = divmod(number, self.ways)
        place, x = divmod(rest, self.each)
        return replica, self.last - place if kind == "F" else place, x

    def done(self, kind: str, number: int) -> set[int]:
        """What an operation that ends lets run, and where."""
        if kind == "W":
            return set()
        replica, stage, x = self.read(kind, number)
        first = x % self.parts == self.parts - 1
        if kind == "F" and stage < self.last:
            return {self.arrives("F", replica, stage + 1, x)}
        if kind == "F":
            return {self.arrives("I", replica, stage, x + 1 - self.parts)} if first else set()
        woken = {self.arrives("I", replica, stage - 1, x)} if stage else set[int]()
        if stage == self.last and not first:
            woken.add(self.arrives("I", replica, stage, x + 1))
        return woken

    def start(self, rank: int, now: float) -> None:
        """What a rank does next, if anything."""
        each = self.ranks[rank]
        forward = self.fits(each)
        due = each.in_a_row >= IN_A_ROW
        if each.backwards and due and forward is None and each.forwards and each.late:
            self.take(rank, "W", each.late.popleft(), now)
        elif each.backwards and not (due and forward is not None):
            self.take(rank, "I", heappop(each.backwards), now)
        elif forward is not None:
            self.take(rank, "F", forward, now)
        elif each.late:
            self.take(rank, "W", each.late.popleft(), now)

    def fits(self, each: _Rank) -> int | None:
        """The first forward that there is room for."""
        if not each.forwards or each.live >= self.most:
            return None
        if not self.kept or each.live + each.lacks[each.oldest] < self.most:
            return each.forwards[0]
        return min((number for number in each.forwards if self.sequence(number) == each.oldest), default=None)

    def sequence(self, forward: int) -> int:
        """The sequence of a forward."""
        replica, _, x = self.read("F", forward)
        return x // self.parts * self.ways + replica

    def take(self, rank: int, kind: str, number: int, now: float) -> None:
        """Does an operation; it lets others run when it ends."""
        each = self.ranks[rank]
        replica, stage, x = self.read(kind, number)
        own, i = divmod(x, self.parts)
        part = i if kind == "F" else self.parts - 1 - i
        each.row.append(Op(kind, replica, own * self.ways + replica, part, stage))  # pyright: ignore[reportArgumentType]
        each.busy = True
        heappush(self.events, (now + self.times[kind, stage == self.last][part], rank, kind, number))
        if kind == "W":
            each.live -= 1
        elif kind == "I":
            each.in_a_row += 1
            each.late.append(number)
        else:
            if number == each.forwards[0]:
                heappop(each.forwards)
            else:
                each.forwards.remove(number)
                heapify(each.forwards)
            each.live, each.in_a_row = each.live + 1, 0
            each.lacks[own * self.ways + replica] -= 1
            while each.oldest < self.shell.sequences and not each.lacks[each.oldest]:
                each.oldest += 1
            if not stage and x + 1 < self.each:
                self.arrives("F", replica, 0, x + 1)
