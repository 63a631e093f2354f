"""From every candidate to the few that are printed: estimates of all, plans of the best, a check of what is shown.

Of candidates on the same mesh one is shown, so that what stands in the table differs in more than a number of passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from ..compiler import Request, check
from ..diagnostics import Diagnostic, SpecError
from ..plan.ir import Plan
from ..source import Source
from .candidate import Candidate, Cut
from .cost import Cost, cost
from .estimate import Estimate, Estimator
from .machine import Machine
from .probe import Probe, planned, probed
from .shape import Shape
from .space import Run, candidates, cuts
from .write import spec_text

#: The best by estimate, each of which is planned.
TOP = 8
#: Plans that are made at most.
MOST_PLANS = 28
#: Of one mesh, plans that fit.
EACH_MESH = 2
#: Plans of the smallest estimates, where none fits.
SMALLEST = 6
#: Ranks that are tried where none fits: so many times as many.
MORE_RANKS = (2, 4, 8, 16, 32, 64)

Tick = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A candidate with its plan, what the plan costs, and its spec."""

    candidate: Candidate
    plan: Plan
    cost: Cost
    text: str


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One search: which model on what, and how much a rank may hold."""

    model: str
    shape: Shape
    run: Run
    machine: Machine
    memory: int
    request: Request

    @property
    def room(self) -> int:
        """Bytes of a rank for what a plan counts."""
        return int(self.memory * (1 - self.machine.reserve))


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search gives.

    Attributes:
        best: fastest first, one for each mesh.
        nearest: the plan that holds least, where none fits.
        counted: candidates that were estimated; `planned` of them were planned.
        refused: cuts that the card does not allow, each with the reason.
    """

    best: tuple[Proposal, ...]
    nearest: Proposal | None
    counted: int
    planned: int
    refused: tuple[tuple[Cut, Diagnostic], ...]


def probes(asked: Asked, tick: Tick) -> tuple[list[Probe], list[tuple[Cut, Diagnostic]]]:
    """(a probe of each cut that the card allows, the others with the reason)."""
    found: list[Probe] = []
    refused: list[tuple[Cut, Diagnostic]] = []
    for cut in cuts(asked.shape, asked.run):
        try:
            found.append(probed(cut, asked.shape, asked.run, asked.request, asked.machine, asked.model))
        except SpecError as error:
            refused.append((cut, error.diagnostics[0]))
        tick()
    return found, refused


def estimates(asked: Asked, found: Sequence[Probe], tick: Tick) -> list[Estimate]:
    """Every candidate, fastest first, and last what cannot fit; among equals the order of their numbers."""
    by, every = Estimator(asked.shape, asked.run, asked.machine), list[Estimate]()
    for probe in found:
        every += (by.of(each, probe, asked.room) for each in candidates(asked.shape, asked.run, probe.cut))
        tick()
    return sorted(every, key=lambda each: (each.seconds, each.candidate))


def proposal(asked: Asked, candidate: Candidate) -> Proposal:
    """A candidate with its plan; that the compiler takes it is ours to know."""
    text = written(asked, candidate)
    try:
        plan = planned(text, asked.shape, asked.request)
    except SpecError as error:
        raise AssertionError(f"a candidate of our own is refused: {error}\n{text}") from error
    return Proposal(candidate=candidate, plan=plan, cost=cost(plan, asked.machine), text=text)


def written(asked: Asked, candidate: Candidate, **more: object) -> str:
    """The spec of a candidate."""
    run, stages = asked.run, candidate.pp * candidate.chunks
    return spec_text(
        candidate,
        asked.shape,
        model=asked.model,
        batch=run.batch,
        seq=run.seq,
        ranks_per_node=run.ranks_per_node,
        split=asked.shape.split(stages) if candidate.pp > 1 else None,
        **more,  # pyright: ignore[reportArgumentType]
    )


def search(asked: Asked, count: int, tick: Tick = lambda: None) -> Found:
    """The best of `count` meshes."""
    found, refused = probes(asked, tick)
    every = estimates(asked, found, tick)
    likely = [each for each in every if each.seconds < inf]
    made = list(_planned(asked, likely, count, tick))
    fits = [each for each in made if each.cost.memory.total <= asked.room]
    best = _of_each_mesh(sorted(fits, key=lambda each: (each.cost.seconds, each.candidate)))[:count]
    nearest = None if best or not every else _nearest(asked, every, made)
    return Found(
        best=tuple(best),
        nearest=nearest,
        counted=len(every),
        planned=len(made),
        refused=tuple(refused),
    )


def _planned(asked: Asked, likely: Sequence[Estimate], count: int, tick: Tick) -> Iterator[Proposal]:
    """Plans in the order of estimates: the first ones, then of each mesh a few, until there are enough."""
    fitting: dict[tuple[tuple[str, int], ...], int] = {}
    made = 0
    for place, each in enumerate(likely):
        mesh = _mesh(each.candidate)
        if made == MOST_PLANS or (place >= TOP and len(fitting) >= count):
            return
        if place >= TOP and fitting.get(mesh, 0) >= EACH_MESH:
            continue
        one = proposal(asked, each.candidate)
        made += 1
        tick()
        if one.cost.memory.total <= asked.room:
            fitting[mesh] = fitting.get(mesh, 0) + 1
        yield one


def _mesh(candidate: Candidate) -> tuple[tuple[str, int], ...]:
    """What tells proposals apart: copies of a stored state count as one axis with it."""
    axes = dict(candidate.mesh)
    axes["dp"] = axes.pop("copies", 1) * axes.get("dp", 1)
    return tuple(sorted(axes.items()))


def _of_each_mesh(proposals: Sequence[Proposal]) -> list[Proposal]:
    found: dict[tuple[tuple[str, int], ...], Proposal] = {}
    for each in proposals:
        found.setdefault(_mesh(each.candidate), each)
    return list(found.values())


def _nearest(asked: Asked, every: Sequence[Estimate], made: Sequence[Proposal]) -> Proposal:
    """The plan that holds least, of those with the smallest estimates."""
    smallest = sorted(every, key=lambda each: (each.memory, each.candidate))[:SMALLEST]
    more = (proposal(asked, each.candidate) for each in smallest)
    return min((*made, *more), key=lambda each: (each.cost.memory.total, each.candidate))


def more_ranks(asked: Asked) -> int | None:
    """How many ranks are enough, of some multiples; None where none of them is. It was tried."""
    for times in MORE_RANKS:
        run = replace(asked.run, ranks=asked.run.ranks * times)
        if run.ranks > run.ranks_per_node and run.ranks % run.ranks_per_node:
            continue
        wider = replace(asked, run=run)
        every = estimates(wider, probes(wider, lambda: None)[0], lambda: None)
        for each in sorted(every, key=lambda each: (each.memory, each.candidate))[:1]:
            if proposal(wider, each.candidate).cost.memory.total <= asked.room:
                return run.ranks
    return None


def finished(asked: Asked, each: Proposal, notes: Sequence[str], name: str) -> str:
    """The spec as it is printed, with its split and its promise. That `check` takes it is ours to see to."""
    text = written(asked, each.candidate, memory=promised(each.cost.memory.total), notes=notes)
    source = Source(name=name, text=text)
    found = check(replace(asked.request, source=source, launch=True, inside=str(Path(name).parent)))
    assert not found, f"a proposal of our own is refused: {found[0].message}\n{text}"
    return text


def promised(total: int) -> str:
    """Bytes as `[expect]` says them, rounded up."""
    unit, size = ("GiB", 2**30) if total >= 2**30 else ("MiB", 2**20)
    return f"{-(-total // size)} {unit}"
