"""What a candidate takes and holds, counted up from its cut's pieces: close to its plan's cost, and no plan is made.

    a pipeline's time     (passes + fill) x the slowest rank's pass, fill = (pp - 1) / chunks of whole sequences or
                          subsequences (Narayanan et al. 2021, section 2.2; Sun et al. 2024); `zbv` fills all of it (Qi
                          et al. 2023)
    microbatches held     pp of 1f1b on its first rank; of interleaved stages (pp - 1) / chunks more; pp of `zbv`; of
                          subsequences (pp - 1) / subsequences + 1

It says which plans are worth making, and no more: what is printed comes from plans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from ..mesh import Mesh, MeshAxis
from ..plan.gathers import MOST_ACTIVE
from ..plan.ir import Kind
from .candidate import Candidate
from .cost import STEPPED
from .machine import Machine
from .passes import HIDING, Bulk, Calls, Pass, passed
from .probe import Probe
from .shape import Shape
from .space import Run
from .work import Work

#: Bytes of a number at rest, while computing, and while gradients are summed, as `write` says.
STATE, COMPUTE, REDUCE = 4, 2, 4
#: Parameters, gradients, two moments.
COPIES = 4
#: Schedules that run on our executor, which has no buffers for all microbatches.
SLICED = ("seq1f1b",)

#: An estimate of a pipeline's memory may be so much too high, and that of other plans by rounding.
SLACK, ROUNDING = 1.15, 1.01

#: Outermost module -> how often a place holds it; of layers the first stands for each.
Held = Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Of one candidate: bytes of the fullest rank, seconds a step; these are infinite where it cannot fit."""

    candidate: Candidate
    seconds: float
    memory: int


@dataclass
class Estimator:
    """Estimates for one model, run and machine; what candidates share is worked out once."""

    shape: Shape
    run: Run
    machine: Machine
    _places: dict[Hashable, list[Held]] = field(default_factory=dict[Hashable, list[Held]])
    _passes: dict[Hashable, list[Pass]] = field(default_factory=dict[Hashable, list[Pass]])

    def of(self, candidate: Candidate, probe: Probe, room: float = inf) -> Estimate:
        """The estimate of a candidate with this probe's cut; its time where it has room for what it holds."""
        held = self.places(candidate, probe)
        weights, values = _Weights(candidate, probe, self.machine), _Values(candidate, probe, self)
        memory = round(max(weights.held(here) + values.at(place, here) for place, here in enumerate(held)))
        fits = memory <= room * (SLACK if candidate.pp > 1 else ROUNDING)
        seconds = self._seconds(candidate, probe, held, weights) if fits else inf
        return Estimate(candidate=candidate, seconds=seconds, memory=memory)

    def _seconds(self, each: Candidate, probe: Probe, held: Sequence[Held], weights: _Weights) -> float:
        passes = self.passes(each, probe, held)
        exposed = max(weights.bulk(here).exposed(one, self.machine) for here, one in zip(held, passes, strict=True))
        state = max(weights.state(here) for here in held)
        return _seconds(each, passes) + exposed + self.machine.touch_time(state / COPIES * STEPPED)

    def sequences(self, each: Candidate) -> float:
        """Of one rank in one pass, as whole ones."""
        return self.run.batch / each.data / each.passes / each.subsequences

    def again(self, each: Candidate, name: str) -> bool:
        """Whether an outermost module runs again."""
        return each.recompute and name == self.shape.layers[0]

    def places(self, each: Candidate, probe: Probe) -> list[Held]:
        """What each place along the pipeline holds."""
        key = (each.pp, each.chunks, each.schedule == "zbv")
        if key not in self._places:
            self._places[key] = [Counter(names) for names in self._dealt(each, probe)]
        return self._places[key]

    def _dealt(self, each: Candidate, probe: Probe) -> list[list[str]]:
        layers = self.shape.layers
        if each.pp == 1:
            others = [name for name in probe.pieces if name not in layers]
            return [[*others, *(layers[0] for _ in layers if layers[0] in probe.pieces)]]
        places = [list[str]() for _ in range(each.pp)]
        for index, modules in enumerate(self.shape.stages(each.pp * each.chunks)):
            there, place = divmod(index, each.pp)
            turned = each.schedule == "zbv" and there % 2
            names = [layers[0] if name in layers else name for name in modules]
            places[each.pp - 1 - place if turned else place] += names
        return places

    def passes(self, each: Candidate, probe: Probe, held: Sequence[Held]) -> list[Pass]:
        """One pass of all stages of each place."""
        sequences = self.sequences(each)
        key = (each.cut, each.pp, each.chunks, each.schedule == "zbv", sequences, each.recompute)
        if key not in self._passes:
            self._passes[key] = [self._passed(each, probe, here, sequences) for here in held]
        return self._passes[key]

    def _passed(self, each: Candidate, probe: Probe, held: Held, sequences: float) -> Pass:
        work, calls = Work(), Calls()
        for name, count in held.items():
            piece = probe.pieces[name]
            done, one = piece.work, piece.calls * sequences + piece.delays
            if self.again(each, name):
                one += Calls(backward=one.forward, exchange_backward=one.exchange_forward)
                done = done.twice()
            work, calls = work + done * (sequences * count), calls + one * count
        return passed(work, calls, self.machine, each.cut.exchange in HIDING)


def _seconds(each: Candidate, passes: Sequence[Pass]) -> float:
    """Of all passes of a step."""
    slowest = max(one.seconds for one in passes)
    fill = 0.0 if each.schedule == "zbv" else (each.pp - 1) / each.chunks
    return (each.passes * each.subsequences + fill) * slowest


@dataclass
class _Weights:
    """Calls for the weights and gradients of what a place holds, and their bytes."""

    candidate: Candidate
    probe: Probe
    machine: Machine

    def __post_init__(self) -> None:
        each = self.candidate
        self.mesh = Mesh(axes=tuple(MeshAxis(name=name, size=size) for name, size in each.mesh.items()))
        wanted = ("dp", each.cut.axis) if each.store != "none" else ()
        self.stored = tuple(axis for axis in wanted if self.mesh.size(axis) > 1)
        self.parts = self.mesh.product(self.stored)

    def elements(self, held: Held) -> int:
        """Numbers of the weights, on one rank while computing."""
        return sum(self.probe.pieces[name].elements * count for name, count in held.items())

    def state(self, held: Held) -> float:
        """Bytes at rest."""
        return self.elements(held) / self.parts * STATE * COPIES

    def bulk(self, held: Held) -> Bulk:
        """Seconds of gathers and sums."""
        each, elements, units = self.candidate, self.elements(held), sum(held.values())
        rest = tuple(a for a in ("copies", "dp") if a not in self.stored and self.mesh.size(a) > 1)
        gather = summed = 0.0
        if self.parts > 1:
            gather = self._time("all_gather", self.stored, units, elements * COMPUTE)
            summed = self._time("reduce_scatter", self.stored, units, elements * REDUCE)
        if rest:
            summed += self._time("all_reduce", rest, units, elements / self.parts * REDUCE)
        if each.store == "free":
            summed += gather
        times = each.passes if each.pp == 1 else 1
        return Bulk(gathered=gather * times, gather_passes=times, summed=summed * times, sum_passes=times)

    def _time(self, kind: Kind, axes: tuple[str, ...], calls: int, size: float) -> float:
        """Of calls with so many bytes in all."""
        group = self.machine.group(self.mesh, axes)
        return calls * self.machine.delay(kind, group) + size * self.machine.per_byte(kind, group)

    def held(self, held: Held) -> float:
        """Bytes of state, of weights gathered and of gradients not yet summed, at one time."""
        each, elements, units = self.candidate, self.elements(held), self.probe.units
        if not self.stored:
            return self.state(held)
        if each.pp > 1:
            active = min(1.0, MOST_ACTIVE / each.chunks)
            return self.state(held) + elements * (COMPUTE * active + REDUCE)
        freed = [size for size, kept in units if not kept]
        pairs = max((sum(freed[i : i + 2]) for i in range(len(freed))), default=0)
        gathered = elements if each.store == "keep" else sum(size for size, kept in units if kept) + pairs
        return self.state(held) + gathered * COMPUTE + max(size for size, _ in units) * REDUCE


@dataclass
class _Values:
    """Bytes that forwards leave on a place, at most at one time."""

    candidate: Candidate
    probe: Probe
    by: Estimator

    def at(self, place: int, held: Held) -> float:
        """Of one place."""
        each, pieces, again = self.candidate, self.probe.pieces, self.by.again
        saved = sum((pieces[n].enters if again(each, n) else pieces[n].saved) * count for n, count in held.items())
        burst = max((pieces[name].burst for name in held if again(each, name)), default=0)
        last = place == (0 if each.schedule == "zbv" else each.pp - 1)
        logits, moment = (self.probe.logits, self.probe.moment) if last else (0, 0)
        sequences = self.by.sequences(each)
        if each.pp == 1:
            return sequences * (saved + max(logits + moment, burst))
        gives, ours = self._gives, each.schedule in SLICED
        received = (each.chunks - (place == 0)) * gives
        more = (each.chunks * gives if ours and not last else logits) - (0 if ours else received)
        own = self._live(place) * (saved + more)
        buffers = 0 if ours else (2 * each.chunks - (place == 0 or last)) * gives * each.passes
        return sequences * (own + buffers + max(burst, moment, 2 * gives))

    @property
    def _gives(self) -> int:
        """Bytes of what goes from layer to layer."""
        layers = self.by.shape.layers
        return self.probe.pieces[layers[0] if layers else next(iter(self.probe.pieces))].gives

    def _live(self, place: int) -> float:
        """Passes whose values a rank holds at one time, in shares of all its stages."""
        each, count = self.candidate, self.candidate.passes * self.candidate.subsequences
        if each.schedule == "zbv":
            most = float(each.pp)
        elif each.chunks > 1:
            most = (2 * (each.pp - 1 - place) + (each.chunks - 1) * each.pp + 1) / each.chunks
        else:
            most = each.pp - place + each.subsequences - 1
        return min(most, count)
