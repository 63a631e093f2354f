"""One order of operations and messages that is safe even where a send waits until it is received.

All ranks take operations and messages by one order of the whole step that puts what is needed
first. Then the smallest event that is not over can always run: both of its ranks are done with all
that comes before it. So it ends, whatever a send waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .edges import edges
from .ir import Op, Problem, Program
from .simulate import Timeline


@dataclass(frozen=True, slots=True)
class Event:
    """An operation of one rank, or what it gives another; of a message `made_by` is the operation before it."""

    made_by: Op
    sender: int
    receiver: int

    def __str__(self) -> str:
        if self.sender == self.receiver:
            return str(self.made_by)
        return f"the message of {self.made_by} from rank {self.sender} to rank {self.receiver}"


Rows = tuple[tuple[Event, ...], ...]


def lowered(program: Program, timeline: Timeline) -> Rows:
    """For each rank its operations, sends and receives, by the times of a simulation."""
    rows: list[list[tuple[float, int, int, Event]]] = [[] for _ in range(program.ranks)]
    ends: dict[Op, float] = {}
    for rank, row in enumerate(program.order):
        times = zip(row, timeline.starts[rank], timeline.ends[rank], strict=True)
        for place, (op, start, end) in enumerate(times):
            ends[op] = end
            rows[rank].append((start, 1, place, Event(op, rank, rank)))
    number = 0
    for (sender, receiver), messages in edges(program).items():
        for message in messages:
            event = (ends[message.made_by], 0, number, Event(message.made_by, sender, receiver))
            rows[sender].append(event)
            rows[receiver].append(event)
            number += 1
    return tuple(tuple(event for *_, event in sorted(row, key=lambda each: each[:3])) for row in rows)


def blocked(rows: Sequence[Sequence[Event]]) -> list[Problem]:
    """The cycle of ranks that wait for each other where every send and receive waits for the other side."""
    at = [0] * len(rows)
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while at[rank] < len(row) and _meets(rows, at, rank):
                event = row[at[rank]]
                for side in {event.sender, event.receiver}:
                    at[side] += 1
                moved = True
    stuck = [rank for rank, row in enumerate(rows) if at[rank] < len(row)]
    return [_cycle(rows, at, stuck[0])] if stuck else []


def _meets(rows: Sequence[Sequence[Event]], at: Sequence[int], rank: int) -> bool:
    """Whether the other side of a rank's next event is there as well."""
    event = rows[rank][at[rank]]
    other = event.receiver if event.sender == rank else event.sender
    return at[other] < len(rows[other]) and rows[other][at[other]] == event


def _cycle(rows: Sequence[Sequence[Event]], at: Sequence[int], rank: int) -> Problem:
    seen: list[int] = []
    while rank not in seen and at[rank] < len(rows[rank]):
        seen.append(rank)
        event = rows[rank][at[rank]]
        rank = event.receiver if event.sender == rank else event.sender
    cycle = seen[seen.index(rank) :] if rank in seen else seen[-1:]
    told = "; ".join(f"rank {each} waits at {rows[each][at[each]]}" for each in cycle)
    return Problem(text=f"no rank can go on: {told}", row=cycle[0], cell=at[cycle[0]])
