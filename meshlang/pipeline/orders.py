"""Orders of actions, a row for each rank along the pipeline's axis, in torch's notation.

`3F0` is the forward of stage 3 for microbatch 0, `3B0` its backward, which torch can also do in
two: `3I0` gives the gradient of the input, `3W0`, any time later, those of the weights. A row says
nothing of time: a rank takes the next action as soon as what it needs is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

Order = tuple[tuple[str, ...], ...]


def gpipe(ranks: int, microbatches: int) -> Order:
    """All forwards, then all backwards, one stage a rank (Huang et al. 2019)."""
    every = range(microbatches)
    return tuple((*(f"{rank}F{m}" for m in every), *(f"{rank}B{m}" for m in every)) for rank in range(ranks))


def one_f_one_b(ranks: int, microbatches: int) -> Order:
    """As many forwards as stages are left, then a backward and a forward in turn (Narayanan et al. 2019)."""
    return tuple(_in_turn(rank, ranks - rank, microbatches) for rank in range(ranks))


def _in_turn(rank: int, ahead: int, microbatches: int) -> tuple[str, ...]:
    row = [f"{rank}F{m}" for m in range(min(ahead, microbatches))]
    for m in range(microbatches):
        row.append(f"{rank}B{m}")
        if ahead + m < microbatches:
            row.append(f"{rank}F{ahead + m}")
    return tuple(row)


def interleaved(ranks: int, chunks: int, microbatches: int) -> Order:
    """Stages loop over the ranks; a forward and a backward in turn (Narayanan et al. 2021, section 2.2)."""
    return tuple(tuple(_alternate(rank, ranks, chunks, microbatches, hop=2)) for rank in range(ranks))


def interleaved_zero_bubble(ranks: int, chunks: int, microbatches: int) -> Order:
    """The same with fewer forwards ahead; gradients of weights follow `rank` backwards later (Qi et al. 2023)."""
    rows = []
    for rank in range(ranks):
        row = _alternate(rank, ranks, chunks, microbatches, hop=1)
        rows.append(tuple(_weights_late(list(row), rank)))
    return tuple(rows)


def _alternate(rank: int, ranks: int, chunks: int, microbatches: int, *, hop: int) -> Iterator[str]:
    """Forwards ahead, `hop` more for each rank that is left; then in turn; then the backwards that remain."""
    per_round = microbatches // max(1, microbatches // ranks)
    total = chunks * microbatches
    ahead = min((chunks - 1) * per_round + hop * (ranks - 1 - rank), total)
    there = [(turn // per_round) % chunks for turn in range(total)]
    forwards = _numbered("F", [chunk * ranks + rank for chunk in there])
    backwards = _numbered("B", [(chunks - 1 - chunk) * ranks + rank for chunk in there])
    yield from forwards[:ahead]
    for turn, backward in enumerate(backwards):
        yield from forwards[ahead + turn : ahead + turn + 1]
        yield backward


def _numbered(kind: str, stages: Sequence[int]) -> list[str]:
    """An action for each stage in turn; a stage takes its microbatches one by one."""
    seen: Counter[int] = Counter()
    found = []
    for stage in stages:
        found.append(f"{stage}{kind}{seen[stage]}")
        seen[stage] += 1
    return found


def _weights_late(row: Sequence[str], late: int) -> Iterator[str]:
    """Each backward in two, its second part after `late` more first parts, or at the end."""
    waiting: list[str] = []
    for action in row:
        if "B" not in action:
            yield action
            continue
        yield action.replace("B", "I")
        waiting.append(action.replace("B", "W"))
        if len(waiting) > late:
            yield waiting.pop(0)
    yield from waiting
