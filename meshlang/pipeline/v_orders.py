"""Orders on stages in the shape of a V: rank r has the stages r and 2 ranks - 1 - r.

The first rank makes the loss as well, so what it needs for its next backward is always near.
"""

from __future__ import annotations

from collections import Counter

from .actions import read_cell
from .orders import Order


class _Row:
    """The actions of one rank as they are added; each stage takes its microbatches one by one."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.near, self.far = rank, 2 * ranks - 1 - rank
        self.cells: list[str] = []
        self.next: Counter[tuple[int, str]] = Counter()
        self.waiting: list[str] = []

    def add(self, stage: int, kinds: str) -> None:
        """The next of each of these actions of a stage."""
        self.cells += [self._take(stage, kind) for kind in kinds]

    def together(self, forward: int, backward: int) -> None:
        """A forward of one stage and a backward of the other, at once."""
        self.cells.append(f"({self._take(forward, 'F')};{self._take(backward, 'B')})OVERLAP_F_B")

    def weights(self) -> None:
        """The oldest gradients of weights that are still to be made, if there are any."""
        if self.waiting:
            self.cells.append(self.waiting.pop(0))

    def _take(self, stage: int, kind: str) -> str:
        counted = "I" if kind == "B" else kind
        microbatch = self.next[stage, counted]
        self.next[stage, counted] += 1
        if kind == "I":
            self.waiting.append(f"{stage}W{microbatch}")
        return f"{stage}{kind}{microbatch}"


def zbv(ranks: int, microbatches: int) -> Order:
    """No rank idles once the V is full (Qi et al. 2023, section 6).

    It is made for at least 2 ranks - 1 microbatches; of fewer, the others' actions are left out.
    """
    enough = max(2 * ranks - 1, microbatches)
    rows = (_zbv(rank, ranks, enough) for rank in range(ranks))
    return tuple(tuple(cell for cell in row if read_cell(cell)[0].microbatch < microbatches) for row in rows)


def _zbv(rank: int, ranks: int, microbatches: int) -> list[str]:
    row = _Row(rank, ranks)
    near, far = row.near, row.far
    row.add(near, "F" * (2 * (ranks - rank) - 1))
    for _ in range(rank):
        row.add(far, "F")
        row.add(near, "F")
    for _ in range(ranks - rank):
        row.add(far, "FIW")
    while row.next[far, "F"] < microbatches:
        row.add(near, "FIW" if row.next[near, "F"] < microbatches else "IW")
        row.add(far, "FIW")
    for _ in range(rank):
        row.add(near, "I")
        row.add(far, "I")
    for _ in range(ranks - rank):
        row.add(near, "IW")
    row.add(far, "W" * (microbatches - row.next[far, "W"]))
    row.add(near, "W" * (microbatches - row.next[near, "W"]))
    return row.cells


def dualpipev(ranks: int, microbatches: int) -> Order:
    """A forward of one stage beside a backward of the other (DeepSeek-AI 2024, cut in half to a V)."""
    return tuple(tuple(_dualpipev(rank, ranks, microbatches)) for rank in range(ranks))


def _dualpipev(rank: int, ranks: int, microbatches: int) -> list[str]:
    row = _Row(rank, ranks)
    near, far, behind = row.near, row.far, ranks - 1 - rank
    row.add(near, "F" * (2 * behind))
    for _ in range(rank + 1):
        row.add(near, "F")
        row.add(far, "F")
    for _ in range(behind):
        row.add(far, "I")
        row.weights()
        row.add(far, "F")
    for turn in range(microbatches - 2 * ranks + rank + 1):
        if turn == 0 and behind == 0:
            row.add(near, "F")
            row.add(far, "B")
        else:
            row.together(near, far)
        row.together(far, near)
    for _ in range(behind):
        row.add(far, "B")
        row.together(far, near)
    return [*row.cells, *_drain(row, rank, behind)]


def _drain(row: _Row, rank: int, behind: int) -> list[str]:
    """The last backwards, the second half of them in two, and the gradients of weights behind them."""
    done = len(row.cells)
    split = [turn >= (rank + 1) // 2 + (rank % 2 == 0) for turn in range(rank + 1)]
    for turn in range(rank + 1):
        row.add(row.far, "I" if split[turn] else "B")
        row.add(row.near, "I" if split[turn] or turn == (rank + 1) // 2 else "B")
    for _ in range(behind):
        row.weights()
        row.add(row.near, "I")
    for _ in range(rank + 1):
        row.weights()
    return row.cells[done:]
