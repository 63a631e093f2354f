"""What a rank must hold at once: state (exact), weights gathered and gradients not yet summed, activations.

Activations are an estimate of the most bytes that values of forwards take at one time, over the rank's
actions in their order. A forward leaves for its backward what the card's `[saved]` says of each module,
or only the inputs of those that are recomputed; a backward takes it away, or, halved, the half that
computes the gradients of weights. Besides, a few values are there for a moment:

    a module that adds holds what the last one inside gave while it makes its own result
    a recomputed module has again all that its forward leaves, before its backward takes it away
    the loss holds the logits and their logarithms of probabilities, in float32
    torch's pipeline keeps a buffer for each microbatch's input of a stage, and for each gradient of its
    output, and the output of each microbatch until its backward (torch 2.14, `distributed.pipelining.stage`)

Not counted: gradients of values, which come and go one module at a time, what operators need inside, and buffers.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod

from ..language.spec import DTYPE_BYTES, SAVED_BYTES
from ..pipeline.actions import flat
from .blocks import fullest
from .gathers import MOST_ACTIVE
from .ir import Edge, Plan, Saved, Stage, Tensor, Unit
from .slices import shares
from .state import padded, state_at


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of the fullest rank.

    Attributes:
        state: parameters, gradients and optimizer at rest; exact.
        gathered: weights that are whole at one time, as FSDP gathers and frees units.
        unsummed: gradients of units before they are summed over the data axes, and cut.
        activations: an estimate; None without `[sizes]`.
        rough: the card does not say what modules save, and their ports stand for it.
    """

    state: int
    gathered: int
    unsummed: int
    activations: int | None
    rough: bool = False

    @property
    def total(self) -> int:
        """All of it, as far as it is known."""
        return self.state + self.gathered + self.unsummed + (self.activations or 0)


def memory(plan: Plan) -> Memory:
    """Of the fullest of the places along the pipeline's axis."""
    places = sorted({c for stage in plan.stages for c in stage.coordinates}) or [0]
    return max((memory_at(plan, place) for place in places), key=lambda found: found.total)


def memory_at(plan: Plan, place: int) -> Memory:
    """Of the first rank at a place along the pipeline's axis."""
    gathered, unsummed = _units(plan, place)
    return Memory(
        state=_state(plan, place),
        gathered=gathered,
        unsummed=unsummed,
        activations=activations(plan, place),
        rough=any(each.rough for each in plan.saved),
    )


def _state(plan: Plan, place: int) -> int:
    """Of the rank with coordinate 0 on every other axis, which holds the most."""
    here = dict.fromkeys(plan.mesh.names, 0) | dict.fromkeys(plan.axes_of("pipeline"), place)
    return state_at(plan, here).total


# Units


def _units(plan: Plan, place: int) -> tuple[int, int]:
    """(weights gathered, gradients not yet summed) at most at one time.

    Without stages a freed unit is there together with the next one, which FSDP asks for ahead. A
    pipeline gathers whole stages, and sums gradients once all microbatches are through.
    """
    width, wide = DTYPE_BYTES[plan.precision.compute], DTYPE_BYTES[plan.precision.reduce]
    if not plan.stages:
        sizes = [_whole(plan, unit) for unit in plan.units]
        kept = sum(size for size, unit in zip(sizes, plan.units, strict=True) if unit.after_forward == "keep")
        freed = [size for size, unit in zip(sizes, plan.units, strict=True) if unit.after_forward == "free"]
        pairs = [sum(freed[i : i + 2]) for i in range(len(freed))]
        return (kept + max(pairs, default=0)) * width, max(sizes, default=0) * wide
    stages = [
        sum(_whole(plan, unit) for unit in plan.units if stage.holds(unit.tensors[0]))
        for stage in plan.stages
        for _ in range(stage.coordinates.count(place))
    ]
    return sum(sorted(stages)[-MOST_ACTIVE:]) * width, sum(stages) * wide


def _whole(plan: Plan, unit: Unit) -> int:
    """Elements of a unit's parameters that are cut at rest, whole over the axes that cut them, and padded."""
    return sum(padded(plan, plan.by_fqn[fqn]) for fqn in unit.tensors if _is_stored(plan, plan.by_fqn[fqn]))


def _is_stored(plan: Plan, tensor: Tensor) -> bool:
    return plan.mesh.product(tensor.stored) > 1


# Activations


@dataclass(frozen=True, kw_only=True)
class Leaves:
    """Bytes that one forward of a stage leaves.

    Attributes:
        saved: until its backward, or the half that computes gradients of weights.
        result: until its backward, or the half that computes the gradients of inputs: the stage's
            output, and the loss.
        forward: the most beyond these at the end of the forward.
        backward: the most beyond these in the backward: less than nothing where nothing is recomputed.
        buffers: of the pipeline, for each microbatch all the time.
    """

    saved: int
    result: int
    forward: int
    backward: int
    buffers: int = 0


def activations(plan: Plan, place: int) -> int | None:
    """The most bytes of forwards' values at one time; None where a size is not known."""
    if any(None in each.shape for each in (*plan.edges, *plan.saved)):
        return None
    stages = {stage.index: stage for stage in plan.stages if place in stage.coordinates} or {0: None}
    parts = shares(plan)
    leaves = {(key, part): StageValues(plan, stage, part).leaves for key, stage in stages.items() for part in {*parts}}
    buffers = sum(leaves[key, parts[0]].buffers for key in stages)  # of torch's pipeline, which takes whole sequences
    live = buffers * plan.passes // (plan.replicas * plan.sizes.accumulation)
    peak = live
    for kind, stage, subsequence in _actions(plan, place, list(stages)):
        mine = leaves[stage, parts[subsequence]]
        if kind == "F":
            live += mine.saved + mine.result
            peak = max(peak, live + mine.forward)
        else:
            peak = max(peak, live + mine.backward)
            live -= {"B": mine.saved + mine.result, "I": mine.result, "W": mine.saved}[kind]
    return peak


def _actions(plan: Plan, place: int, stages: Sequence[int]) -> Iterator[tuple[str, int, int]]:
    """(kind, stage, subsequence) in the order of one pass; without an order, all forwards and then all backwards."""
    use = plan.pipeline if plan.stages else None
    if use is not None and use.order:
        yield from ((action.kind, action.stage, 0) for action in flat(use.order[place]))
    elif use is not None and use.program is not None:
        yield from ((op.kind, op.stage, op.subsequence) for op in use.program.order[place])
    else:
        passes = [i for _ in range(plan.batches // plan.sizes.accumulation) for i in range(plan.slices)]
        yield from (("F", stage, i) for i in passes for stage in stages)
        yield from (("B", stage, i) for i in reversed(passes) for stage in reversed(stages))


@dataclass(frozen=True)
class StageValues:
    """The modules of one stage, or of a model without stages, over a share of a sequence's tokens."""

    plan: Plan
    stage: Stage | None
    share: Fraction

    @property
    def leaves(self) -> Leaves:
        """What one forward leaves."""
        saved = sum(self.kept.values())
        inputs = self.inputs(self.stage.modules[0]) if self.stage is not None and self.buffered else 0
        sent = self.output if self.stage is not None and self.by_torch and not self.is_last else 0
        result = self.log_probabilities + (0 if self.stage is None or self.stays else self.output)
        again = (sum(self.kept_until(module)) + more for module, more in self.bursts.items())
        return Leaves(
            saved=saved - inputs,
            result=result,
            forward=self.moment,
            backward=max(again, default=0) - saved - result,
            buffers=inputs + sent,
        )

    @property
    def is_last(self) -> bool:
        """Whether the loss is there."""
        return self.stage is None or self.stage.index == len(self.plan.stages) - 1

    @property
    def buffered(self) -> bool:
        """Whether torch's pipeline receives the stage's input."""
        return self.stage is not None and self.stage.index > 0 and self.by_torch

    @property
    def by_torch(self) -> bool:
        """Whether torch's pipeline runs it."""
        return self.plan.pipeline is not None and self.plan.pipeline.by_torch

    @property
    def stays(self) -> bool:
        """Whether the next stage takes the output on the same rank: it is that stage's input."""
        if self.stage is None or self.is_last:
            return False
        return self.plan.stages[self.stage.index + 1].coordinate == self.stage.coordinate

    def mine(self, module: str) -> bool:
        """Whether a module lies in the stage."""
        return bool(module) and (self.stage is None or _nearest(module, self.held) is not None)

    @cached_property
    def held(self) -> frozenset[str]:
        """Modules of the stage."""
        return frozenset(self.stage.modules if self.stage is not None else ())

    @cached_property
    def tops(self) -> list[str]:
        """The outermost modules in the order of the card."""
        names = list(dict.fromkeys(edge.module for edge in self.plan.edges if self.mine(edge.module)))
        known = set(names)
        return [name for name in names if not any(above in known for above in _around(name))]

    @cached_property
    def _tops(self) -> frozenset[str]:
        return frozenset(self.tops)

    @cached_property
    def _moved(self) -> dict[str, int]:
        """Module -> the most bytes of both sides of an output that is moved, its own or that of one inside."""
        found: dict[str, int] = {}
        for edge in self.plan.edges:
            if edge.port == "output" and edge.src.dims != edge.dst.dims and self.mine(edge.module):
                size = 2 * sum(self.edge_bytes(edge, side.dims) for side in (edge.src, edge.dst))
                for module in (edge.module, *_around(edge.module)):
                    found[module] = max(found.get(module, 0), size)
        return found

    @cached_property
    def kept(self) -> dict[str, int]:
        """Outermost module -> bytes that stay from its forward to its backward."""
        found, again = dict.fromkeys(self.tops, 0), frozenset(self.plan.recompute)
        for each in self.plan.saved:
            if self.mine(each.module) and _nearest(each.module, again) is None:
                found[self.top(each.module)] += each.count * self.bytes(each)
        for module in self.recomputed:
            found[self.top(module)] += self.inputs(module)
        return found

    @cached_property
    def bursts(self) -> dict[str, int]:
        """Recomputed module -> bytes that come back for its backward, at most."""
        inside = dict.fromkeys(self.recomputed, 0)
        for each in self.plan.saved:
            module = _nearest(each.module, inside)
            if module is not None:
                inside[module] += each.count * self.bytes(each)
        return {module: size - self.inputs(module) + self.joins(module) for module, size in inside.items()}

    @cached_property
    def recomputed(self) -> list[str]:
        """Its modules whose forward runs again."""
        return [module for module in self.plan.recompute if self.mine(module)]

    def top(self, module: str) -> str:
        """The outermost module around one."""
        return _nearest(module, self._tops) or module

    def kept_until(self, module: str) -> list[int]:
        """What is left, when a module runs again, of those before it and of its own outermost one."""
        return [self.kept[name] for name in self.tops[: self.tops.index(self.top(module)) + 1]]

    def inputs(self, module: str) -> int:
        """Bytes of what enters a module, as it comes."""
        edges = (e for e in self.plan.edges_of.get(module, ()) if e.port != "output")
        return sum(self.edge_bytes(edge, edge.src.dims) for edge in edges)

    def gives(self, module: str) -> int:
        """Bytes of a module's output, as it goes on."""
        edge = self.plan.by_port.get((module, "output"))
        return 0 if edge is None else self.edge_bytes(edge, edge.dst.dims)

    def joins(self, module: str) -> int:
        """Bytes beside what is saved when a module's result is made: it and its last operand, or that on its way.

        A move between parts of two dims, or of another dim than the first, holds both sides twice: as
        they are, and in the order in which they are sent.
        """
        return max(2 * self.gives(module), self._moved.get(module, 0))

    @property
    def output(self) -> int:
        """Bytes of what the last module gives."""
        return self.gives(self.stage.modules[-1] if self.stage is not None else self.tops[-1])

    @property
    def log_probabilities(self) -> int:
        """Of the loss, which computes in float32 or wider."""
        loss = self.plan.loss
        if loss is None or not self.is_last:
            return 0
        width = DTYPE_BYTES["float64" if self.plan.precision.compute == "float64" else "float32"]
        whole = _part(loss.shape, loss.layout.dims, self.plan)
        return int(width * whole * self.share / self.plan.batches)

    @property
    def moment(self) -> int:
        """Beyond what is left, at the end of a forward: the logits, or the last operand of a sum."""
        loss = self.plan.loss
        if loss is None or not self.is_last:
            joined = self.joins(self.tops[-1])
            return joined - self.output if self.stage is not None and not self.stays else joined
        shifted = self.log_probabilities if self.plan.mesh.product(loss.layout.dims[loss.vocab]) > 1 else 0
        wider = self.log_probabilities if self.plan.precision.compute in ("bfloat16", "float16") else 0
        return (self.output if self.stage is None else 0) + shifted + wider

    def bytes(self, saved: Saved) -> int:
        """Of one saved value, on the fullest rank in one pass."""
        if saved.port is not None:
            edge = self.plan.by_port[saved.module, saved.port]
            layout = edge.src if saved.port == "output" else edge.dst
            return self.edge_bytes(edge, layout.dims, saved.dtype)
        return self.value_bytes(saved.names, saved.shape, saved.cuts, saved.dtype)

    def edge_bytes(self, edge: Edge, cuts: Sequence[tuple[str, ...]], dtype: str | None = None) -> int:
        """Of what crosses a boundary, where it is cut so."""
        return self.value_bytes(edge.names, edge.shape, cuts, dtype)

    def value_bytes(
        self,
        names: Sequence[tuple[str, ...]],
        shape: Sequence[int | None],
        cuts: Sequence[tuple[str, ...]],
        dtype: str | None,
    ) -> int:
        """Of a value with the part of one pass of the rank's sequences, and of their tokens."""
        first = {factors[0] for factors in names}
        each = Fraction(_part(shape, cuts, self.plan), self.plan.batches if "batch" in first else 1)
        if self.plan.block is not None:
            each *= fullest(self.plan.block, names, shape, cuts)
        return int(each * self.share if "seq" in first else each) * SAVED_BYTES[dtype or self.plan.precision.compute]


def _nearest(module: str, known: Container[str]) -> str | None:
    """The module itself, or the nearest around it, that is known."""
    return next((name for name in (module, *_around(module)) if name in known), None)


def _around(module: str) -> Iterator[str]:
    while "." in module:
        module = module.rpartition(".")[0]
        yield module


def _part(shape: Sequence[int | None], cuts: Sequence[tuple[str, ...]], plan: Plan) -> int:
    sizes = [size or 0 for size in shape]
    return prod(-(-size // plan.mesh.product(axes)) for size, axes in zip(sizes, cuts, strict=True))
