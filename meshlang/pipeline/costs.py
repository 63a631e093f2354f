"""What operations and messages cost: a few numbers, each said in time units of one's own choice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Times of one sequence on one share of the model, and of what is sent.

    Attributes:
        forward: of one sequence on a share.
        backward: in forwards, outside attention; both halves of it.
        attention_backward: in forwards, of attention: the usual kernel computes 5 products where its
            forward computes 2 (FlashAttention-2, arXiv 2307.08691).
        weights: share of a backward outside attention that computes gradients of weights, where it is in two.
        attention: share of a whole sequence's forward that is attention: it grows with the keys that
            a subsequence sees, the rest with its tokens.
        split: subsequences of equal tokens, or of equal forwards.
        lengths: tokens of each subsequence, where a Program has as many; all others are as `split` says.
        latency: until a message of any length begins to arrive, between ranks of one node.
        transfer: of one sequence's hidden states, between ranks of one node; a subsequence takes its part.
        latency_between, transfer_between: the same between nodes; as inside where None.
        ranks_per_node: along the pipeline axis; None is one node.
        head: of the model's head for one sequence, forward, beside the last stage; backward in proportion.
        sync: of the sum over two copies of a share's gradients.
        sync_between: the same between nodes; as inside where None.
        eager: a stage's gradients are summed as soon as both copies have them, or all at the end.
        shares: parts of the model that the times are of one of; as many as ranks where None.
    """

    forward: float = 1.0
    backward: float = 2.0
    attention_backward: float = 2.5
    weights: float = 0.5
    attention: float = 0.0
    split: Literal["equal", "flops"] = "equal"
    lengths: tuple[int, ...] = ()
    latency: float = 0.0
    transfer: float = 0.0
    latency_between: float | None = None
    transfer_between: float | None = None
    ranks_per_node: int | None = None
    head: float = 0.0
    sync: float = 0.0
    sync_between: float | None = None
    eager: bool = True
    shares: int | None = None

    def ends(self, subsequences: int) -> tuple[float, ...]:
        """Where subsequences begin and end, as shares of a sequence: 0, ..., 1."""
        if len(self.lengths) == subsequences:
            whole = sum(self.lengths)
            return tuple(end / whole for end in accumulate(self.lengths, initial=0))
        return bounds(subsequences, self.attention, self.split)

    def is_even(self, subsequences: int) -> bool:
        """Whether so many subsequences have equal tokens."""
        if len(self.lengths) == subsequences:
            return len(set(self.lengths)) == 1
        return self.split == "equal" or not self.attention

    def apart(self, a: int, b: int) -> bool:
        """Whether two ranks of the pipeline are on different nodes."""
        node = self.ranks_per_node
        return node is not None and a // node != b // node

    def link(self, a: int, b: int) -> tuple[float, float]:
        """(latency, transfer of one sequence) from one rank to another."""
        if not self.apart(a, b):
            return self.latency, self.transfer
        between = self.latency_between, self.transfer_between
        return (
            self.latency if between[0] is None else between[0],
            self.transfer if between[1] is None else between[1],
        )

    @property
    def least_link(self) -> tuple[float, float]:
        """The least (latency, transfer of one sequence) of any two ranks."""
        inside, node = self.link(0, 0), self.ranks_per_node
        between = inside if node is None else self.link(0, node)
        return min(inside[0], between[0]), min(inside[1], between[1])

    def sum_of(self, a: int, b: int) -> float:
        """Time of the sum of a share's gradients over two ranks."""
        return self.sync if self.sync_between is None or not self.apart(a, b) else self.sync_between


def bounds(subsequences: int, attention: float = 0.0, split: Literal["equal", "flops"] = "equal") -> tuple[float, ...]:
    """Where subsequences begin and end, as shares of a sequence: 0, ..., 1.

    With equal forwards, the end x of the i-th of n solves (1 - a) x + a x^2 = i / n, a the attention
    share: causal attention over x of a sequence is x^2 of the whole.
    """
    if split == "equal" or attention == 0:
        return tuple(i / subsequences for i in range(subsequences + 1))
    rest = 1 - attention
    ends = (i / subsequences for i in range(subsequences + 1))
    return tuple((-rest + (rest * rest + 4 * attention * end) ** 0.5) / (2 * attention) for end in ends)


def cut(tokens: int, ends: Iterable[float], multiple: int = 1) -> tuple[int, ...]:
    """The same in tokens, each a multiple of a number that divides all of them, and none empty where it can be."""
    units = tokens // multiple
    found = [round(end * units) for end in ends]
    for i in range(1, len(found)):
        found[i] = max(found[i], found[i - 1] + 1)
    for i in range(len(found) - 1, 0, -1):
        found[i] = min(found[i], units - (len(found) - 1 - i))
    return tuple(unit * multiple for unit in found)


def shares(ends: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """For each subsequence its share of the tokens, and of the pairs of a query and a key that it sees."""
    pairs = tuple(pairwise(ends))
    return tuple(b - a for a, b in pairs), tuple(b * b - a * a for a, b in pairs)
