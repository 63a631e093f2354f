"""`[strategy.ulysses]`: inside attention the axis cuts heads in place of tokens, by all-to-all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

from meshlang.strategy import Context, Diagnostic, Edge, Layout, Plan, Strategy

from .context import AXIS, Looks, carries_sequence, looking, name, numbers, rewritten, sequence_dim, uncut


@final
@dataclass(frozen=True, kw_only=True)
class Ulysses(Strategy):
    """DeepSpeed-Ulysses (arXiv 2309.14509): each rank sees all tokens of some heads.

    Queries, keys, values and the output take one all-to-all each, and their gradients another:
    what a rank sends stays the same part of the sequence however many ranks there are. Where
    heads are cut already, as over a tensor axis, this axis cuts inside that cut. A rank does
    equal work whatever tokens it has, so there is nothing to balance.
    """

    ops: ClassVar[str | None] = None

    axis: str = field(metadata=AXIS)

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """The axis carries the sequence, and the heads of every port divide over all axes that cut them."""
        found = list(carries_sequence(self, context))
        yield from found
        if not found:
            yield from _heads(self, context)

    def apply(self, plan: Plan) -> Plan:
        """Heads cut in place of tokens, inside the modules that look over all tokens."""
        return rewritten(plan, (self._turned(edge) for each in looking(plan, self.axis) for edge in each.edges))

    def _turned(self, edge: Edge) -> Edge:
        dim = _heads_dim(edge)
        if dim is None:
            return uncut(edge, self.axis)
        if edge.port == "output":
            return replace(edge, src=_turned(edge.src, dim, self.axis))
        return replace(edge, dst=_turned(edge.dst, dim, self.axis))


def _turned(layout: Layout, heads: int, axis: str) -> Layout:
    """The axis taken from where it is, and put innermost into the heads."""
    dims = [tuple(each for each in axes if each != axis) for axes in layout.dims]
    dims[heads] = (*dims[heads], axis)
    return replace(layout, dims=tuple(dims))


def _heads_dim(edge: Edge) -> int | None:
    """The dim after the sequence, or None where there is none: such an input is gathered."""
    dim = sequence_dim(edge)
    assert dim is not None
    return dim + 1 if dim + 1 < len(edge.names) else None


def _heads(strategy: Ulysses, context: Context) -> Iterator[Diagnostic]:
    """Each name once: the ports of all layers have the same heads."""
    told: set[str] = set()
    for each in looking(context.plan, strategy.axis):
        for edge in each.edges:
            for word, finding in _misfit(strategy, context, each, edge):
                if word not in told:
                    told.add(word)
                    yield finding


def _misfit(strategy: Ulysses, context: Context, each: Looks, edge: Edge) -> Iterator[tuple[str, Diagnostic]]:
    plan, dim = context.plan, _heads_dim(edge)
    if dim is None:
        if edge.port == "output":
            message = f"the output of `{each.module}` has no dimension after `seq` that `{strategy.axis}` could cut"
            yield "", context.finding("strategy-axis", message, key="axis")
        return
    word, axes = edge.names[dim][0], (edge.src if edge.port == "output" else edge.dst).dims[dim]
    if word in edge.whole:
        message = f"`{name(context)}` would cut `{word}`, over the whole of which `{each.module}` computes"
        yield word, context.finding("strategy-axis", message, key="axis")
        return
    count, cuts = _count(plan, edge, dim), (*axes, strategy.axis)
    parts = plan.mesh.product(cuts)
    if count is None or count % parts == 0:
        return
    over = " x ".join(f"`{axis}` = {plan.mesh.size(axis)}" for axis in cuts)
    others = parts // plan.mesh.size(strategy.axis)
    most = max(n for n in range(1, parts + 1) if count % (n * others) == 0) if count % others == 0 else 1
    note = f"`{strategy.axis}` may be {most} at most, or a part of it" if most > 1 else "only a size of 1 would fit"
    yield word, numbers(context, f"`{word}` = {count} does not divide over {over}", note)


def _count(plan: Plan, edge: Edge, dim: int) -> int | None:
    """Units of the outermost factor of a dim."""
    if len(edge.names[dim]) == 1:
        return edge.shape[dim]
    word = edge.names[dim][0]
    return next((each.units for tensor in plan.tensors for each in tensor.dims if each.names[0] == word), None)
