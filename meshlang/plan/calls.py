"""Which of a plan's collectives one rank makes."""

from __future__ import annotations

from collections.abc import Iterator

from .ir import Collective, Plan


def calls_at(plan: Plan, rank: int) -> Iterator[Collective]:
    """The collectives that a rank makes; those of a stage whose two copies it holds come twice."""
    here = plan.mesh.coordinate(rank)
    axes = plan.axes_of("pipeline")
    copies = {
        stage.index: [r for r, at in enumerate(stage.coordinates) if all(here[axis] == at for axis in axes)]
        for stage in plan.stages
    }
    for call in plan.collectives:
        if call.stage is None:
            yield call
            continue
        yield from (call for replica in copies[call.stage] if call.replica in (None, replica))
