"""Which clean tokens even out what ranks compute, and which blocks are exchanged where those cannot. Knows no torch.

A weight is a number of pairs of a query and a key; `seen(stop)` has those of all queries before a token.
Nothing here walks over tokens: what is exchanged are pieces of runs, some tens of a rank.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshlang.plan.blocks import Runs, joined

Seen = Callable[[int], int]

#: How far from the mean a rank may be left, as a share of the mean: an exchange makes more runs.
NEAR = 0.01

#: Into how many pieces a rank's runs are cut, at least where they have as many tokens.
PIECES = 32

#: Passes over the ranks in search of an exchange.
SWEEPS = 32


def nested(counts: Sequence[int], tokens: int, targets: Sequence[float], seen: Seen, leave: float) -> list[Runs]:
    """For each rank as many tokens as `counts` says, from the head and the tail of what the ranks before it left.

    They are half and half where that is within `leave` of the rank's target weight, and else as many of
    each as come nearest to it. What one rank is off its target, the next one makes up for.
    """
    start, stop, off = 0, tokens, 0.0
    found: list[Runs] = []
    for count, target in zip(counts, targets, strict=True):
        split = _Split(start=start, stop=stop, count=count, seen=seen)
        wanted = target - off
        head = count // 2
        if abs(split.weight(head) - wanted) > leave:
            head = split.nearest(wanted)
        off = split.weight(head) - wanted
        found.append(split.runs(head))
        start, stop = start + head, stop - (count - head)
    assert start == stop, (counts, tokens)
    return found


@dataclass(frozen=True, kw_only=True)
class _Split:
    """`count` tokens of start ... stop, some from the head and the rest from the tail."""

    start: int
    stop: int
    count: int
    seen: Seen

    def runs(self, head: int) -> Runs:
        """The tokens."""
        return joined([(self.start, self.start + head), (self.stop - self.count + head, self.stop)])

    def weight(self, head: int) -> int:
        """Their pairs: the more of the head, the fewer."""
        return weight(self.runs(head), self.seen)

    def nearest(self, target: float) -> int:
        """The length of the head that comes nearest to a weight."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.weight(middle) > target else (low, middle)
        return min((max(low - 1, 0), low), key=lambda head: abs(self.weight(head) - target))


def weight(runs: Runs, seen: Seen) -> int:
    """Pairs of the queries of some runs."""
    return sum(seen(stop) - seen(start) for start, stop in runs)


@dataclass(frozen=True, kw_only=True)
class Held:
    """Runs of a stream that somebody has.

    Attributes:
        stream: pieces are exchanged for pieces of the same one.
        copies: of each pair.
        unit: tokens that stay together.
    """

    runs: Runs
    stream: str
    copies: int
    unit: int


def exchanged(holders: Sequence[Sequence[Held]], seen: Seen, near: float) -> list[list[Runs]]:
    """What each holder has, with equal pieces exchanged until all are within `near` of the mean weight.

    The heaviest and the lightest look for two pieces that bring both nearest to the mean, so do the next two,
    and so on; in later sweeps others meet. Every `Held` keeps as many tokens as it has.
    """
    sizes = _pieces([held for each in holders for held in each])
    mean = sum(held.copies * weight(held.runs, seen) for each in holders for held in each) / len(holders)
    found = [_Holder.of(each, sizes, mean, seen) for each in holders]
    half = len(found) // 2
    for sweep in range(SWEEPS if half else 0):
        if all(abs(each.excess) <= near for each in found):
            break
        order = sorted(found, key=lambda each: -each.excess)
        for index in range(len(order)):
            other = (len(order) - 1 + sweep - index) % len(order)
            if index < other:
                _trade(order[index], order[other])
    return [[pool.runs() for pool in each.pools] for each in found]


def _pieces(held: Sequence[Held]) -> dict[str, int]:
    """Tokens of a piece of each stream."""
    least: dict[str, int] = {}
    for each in held:
        least[each.stream] = min(length(each.runs), least.get(each.stream, length(each.runs)))
    units = {each.stream: each.unit for each in held}
    return {stream: max(1, least[stream] // (PIECES * unit)) * unit for stream, unit in units.items()}


def length(runs: Iterable[tuple[int, int]]) -> int:
    """Of all runs together."""
    return sum(stop - start for start, stop in runs)


@dataclass(kw_only=True)
class _Pool:
    """Pieces of one length by weight, and what is too short for one."""

    pieces: list[tuple[int, int]]
    rest: list[tuple[int, int]]
    size: int
    stream: str

    @classmethod
    def of(cls, held: Held, size: int, seen: Seen) -> _Pool:
        """The pieces of some runs."""
        starts = [at for start, stop in held.runs for at in range(start, stop - size + 1, size)]
        rest = [(stop - (stop - start) % size, stop) for start, stop in held.runs]
        pieces = sorted((held.copies * (seen(at + size) - seen(at)), at) for at in starts)
        return cls(pieces=pieces, rest=rest, size=size, stream=held.stream)

    def runs(self) -> Runs:
        """What is in it."""
        return joined(sorted([*((at, at + self.size) for _, at in self.pieces), *self.rest]))


@dataclass(kw_only=True)
class _Holder:
    """What somebody has, and how far that is above the mean."""

    pools: list[_Pool]
    excess: float

    @classmethod
    def of(cls, held: Sequence[Held], sizes: Mapping[str, int], mean: float, seen: Seen) -> _Holder:
        """The pieces of what is held."""
        pools = [_Pool.of(each, sizes[each.stream], seen) for each in held]
        return cls(pools=pools, excess=sum(each.copies * weight(each.runs, seen) for each in held) - mean)


#: How far off the farther of two is after an exchange; the pools; the pieces in them.
_Found = tuple[float, int, int, int, int]


def _trade(heavy: _Holder, light: _Holder) -> None:
    """Exchange the two pieces that leave the farther of both nearest to the mean, if that is nearer."""
    best: _Found = (max(abs(heavy.excess), abs(light.excess)), -1, -1, -1, -1)
    for first, mine in enumerate(heavy.pools):
        for second, theirs in enumerate(light.pools):
            if mine.stream == theirs.stream:
                offers = _offers(heavy.excess, light.excess, mine, theirs)
                best = min([best, *((off, first, second, given, taken) for off, given, taken in offers)])
    _, first, second, given, taken = best
    if first < 0:
        return
    mine, theirs = heavy.pools[first].pieces, light.pools[second].pieces
    moved = mine[given][0] - theirs[taken][0]
    mine[given], theirs[taken] = theirs[taken], mine[given]
    mine.sort()
    theirs.sort()
    heavy.excess, light.excess = heavy.excess - moved, light.excess + moved


def _offers(above: float, below: float, mine: _Pool, theirs: _Pool) -> Iterator[tuple[float, int, int]]:
    """For each piece of the heavier one the two of the lighter that come nearest to what it should get for it."""
    wanted = (above - below) / 2
    for given, (size, _) in enumerate(mine.pieces):
        place = bisect_left(theirs.pieces, (size - wanted, -1))
        for taken in range(max(0, place - 1), min(len(theirs.pieces), place + 1)):
            moved = size - theirs.pieces[taken][0]
            yield max(abs(above - moved), abs(below + moved)), given, taken
