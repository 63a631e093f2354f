"""How much a rank holds for its backwards: activations of a stage live from the forward to the gradients of weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .ir import Op, Program


def peak_counts(program: Program) -> tuple[int, ...]:
    """For each rank the most operations whose activations it holds at once."""
    return tuple(int(most) for most in _peaks(program, [1.0] * program.subsequences))


def peak_activations(
    program: Program, *, lengths: Sequence[float] | None = None, shares: int | None = None
) -> tuple[float, ...]:
    """For each rank the most that it holds at once, in units of one sequence on a share of the model.

    Args:
        lengths: share of a sequence's tokens in each subsequence; equal without it.
        shares: parts of the model that a unit is one of; as many as ranks without it.
    """
    parts = lengths if lengths is not None else [1 / program.subsequences] * program.subsequences
    unit = (shares or program.ranks) / program.stages
    if lengths is None:  # whole numbers until the end: no rounding in sums
        return tuple(count * unit / program.subsequences for count in peak_counts(program))
    return tuple(most * unit for most in _peaks(program, parts))


def _peaks(program: Program, weights: Sequence[float]) -> tuple[float, ...]:
    return tuple(peak_of_row(row, weights) for row in program.order)


def peak_of_row(row: Iterable[Op], weights: Sequence[float]) -> float:
    """The most that one rank holds at once, with a weight for each subsequence."""
    now = most = 0.0
    for op in row:
        if op.kind == "F":
            now += weights[op.subsequence]
            most = max(most, now)
        elif op.kind != "I":
            now -= weights[op.subsequence]
    return most
