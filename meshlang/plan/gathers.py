"""How often the weights of a stage are gathered in a step: what torch's FSDP does under a pipeline.

A forward gathers weights that are not there, and frees them when the unit says so; a backward
gathers what is not there, and leaves it. Schedules of several stages a rank also gather ahead of
need, and free the stages whose turn is furthest: three stages at most are there at once.
(torch 2.14, `distributed.pipelining`; measured over gloo.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..pipeline.actions import Action, flat

#: Stages of one rank whose weights are there at once.
MOST_ACTIVE = 3

Counts = dict[int, tuple[int, int]]


def gathers(row: tuple[str, ...], *, free: bool, ahead: bool) -> Counts:
    """Stage -> (gathers in or before forwards, gathers in backwards) of one step of one rank.

    Args:
        free: weights are freed after each forward.
        ahead: the schedule is one of several stages a rank, which gathers before it computes.
    """
    actions = list(flat(row))
    there: set[int] = set()
    counts = {action.stage: [0, 0] for action in actions}
    for stage, word in _words(actions, ahead):
        if word == "free":
            there.discard(stage)
            continue
        if stage not in there:
            counts[stage][word in "BI"] += 1
        there.add(stage)
        if word == "F" and free:
            there.discard(stage)
    return {stage: (forward, backward) for stage, (forward, backward) in counts.items()}


def _words(actions: Sequence[Action], ahead: bool) -> Iterator[tuple[int, str]]:
    """What uses weights, and, where torch says so, what gathers and frees them."""
    active: list[int] = []
    for action, soon in zip(actions, _next_stages(actions), strict=True):
        if ahead:
            yield from ((stage, "free") for stage in active if stage not in soon)
            yield from ((stage, "ahead") for stage in soon if stage not in active)
            active = soon
        if action.kind != "W":
            yield action.stage, action.kind


def _next_stages(actions: Sequence[Action]) -> list[list[int]]:
    """For each action the first stages that act from there on, as many as may be there."""
    found: list[list[int]] = []
    order: list[int] = []
    for action in reversed(actions):
        order = [action.stage, *(stage for stage in order if stage != action.stage)]
        found.append(order[:MOST_ACTIVE])
    return found[::-1]
