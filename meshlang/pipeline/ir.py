"""A schedule as data: which rank hosts which stage of which replica, and what each rank does, in order.

Every schedule of the pipeline axis is a Program, whoever wrote it: orders in torch's notation are
read into one, sequence-level and bidirectional ones are made as one. The
checker, the simulator, the timeline and the executor know nothing else.

    microbatch = `sequence` here: whatever the executor feeds as one sample through the pipeline
    subsequence: a slice of its tokens; forward in order 0..s-1, backward in order s-1..0 on each stage
    replica: a copy of all stages; 0 goes down, 1 (where there are two) comes up
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

#: F forward, B the whole backward, or its halves: I the gradient of the input, W those of the weights.
OpKind = Literal["F", "B", "I", "W"]


@dataclass(frozen=True, slots=True)
class Op:
    """What a rank does at once: one stage of one replica, for one subsequence of one sequence."""

    kind: OpKind
    replica: int
    sequence: int
    subsequence: int
    stage: int

    def __str__(self) -> str:
        """As a timeline writes it: `F3.1@5` is stage 5, sequence 3, its subsequence 1; `^` is of replica 1."""
        return f"{self.kind}{self.sequence}.{self.subsequence}@{self.stage}{'^' * self.replica}"


@dataclass(frozen=True, slots=True)
class Host:
    """Where one stage of one replica lies."""

    replica: int
    stage: int
    rank: int


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A law that an order breaks, at a place in it; `cell` None is the whole row, `row` None the whole order.

    Attributes:
        text: what is wrong, with {} for each of `ops`.
    """

    text: str
    ops: tuple[Op, ...] = ()
    row: int | None = None
    cell: int | None = None

    @property
    def message(self) -> str:
        """What is wrong, as a timeline writes operations."""
        return self.told(str)

    def told(self, notation: Callable[[Op], str]) -> str:
        """The same in another notation."""
        return self.text.format(*map(notation, self.ops))


@dataclass(frozen=True, kw_only=True)
class Program:
    """All that a step of the pipeline is.

    Attributes:
        ranks: along the pipeline axis.
        stages: of each replica.
        sequences: over both replicas; each goes through one of them.
        subsequences: of each sequence.
        hosts: one for each stage of each replica.
        order: for each rank its operations; it takes the next as soon as what that needs is there.
    """

    ranks: int
    stages: int
    replicas: int
    sequences: int
    subsequences: int
    hosts: tuple[Host, ...]
    order: tuple[tuple[Op, ...], ...]

    @cached_property
    def host(self) -> Mapping[tuple[int, int], int]:
        """(replica, stage) -> rank."""
        return {(each.replica, each.stage): each.rank for each in self.hosts}

    @cached_property
    def replica_of(self) -> Mapping[int, int]:
        """Sequence -> the replica that it goes through."""
        return {op.sequence: op.replica for row in self.order for op in row}

    def held(self, rank: int) -> tuple[tuple[int, int], ...]:
        """(replica, stage) of each stage that a rank holds, by replica, then stage."""
        return tuple(sorted(key for key, at in self.host.items() if at == rank))

    def ops(self) -> Iterator[tuple[int, int, Op]]:
        """(rank, place in its order, operation) of each."""
        for rank, row in enumerate(self.order):
            for place, op in enumerate(row):
                yield rank, place, op
