"""Laws of a plan, one function a law. A spec that breaks one gets a finding, with the place that did it."""

from __future__ import annotations

from ..diagnostics import Bag
from . import findings
from .collectives import known_move, moves
from .ir import Plan
from .resolve import Resolved, strategy_axes


def verify(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """Every law, into the bag."""
    for law in (no_unfinished_sum, one_move_an_edge, inner_cuts_move, needed_whole, weights_agree, store_is_free):
        law(plan, resolved, bag)


def no_unfinished_sum(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """No value goes on from a boundary as a sum that nobody finishes."""
    for edge in plan.edges:
        for axis in plan.mesh.names:
            if edge.dst.kind(axis) == "P" and plan.mesh.size(axis) > 1:
                bag.add(findings.unfinished_sum(edge, axis, resolved))


def one_move_an_edge(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """A boundary redistributes over one axis at most, by a move that has a meaning."""
    for edge in plan.edges:
        found = moves(edge, plan.mesh)
        if len(found) > 1:
            bag.add(findings.moves_twice(edge, [move.axis for move in found], resolved))
        for move in found:
            assert known_move(move) or edge.dst.kind(move.axis) == "P", f"{edge.module} {edge.port}: {move}"


def inner_cuts_move(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """Where a dim is cut by several axes, only the innermost comes or goes at a boundary."""
    for edge in plan.edges:
        for dim in range(len(edge.names)):
            src, dst = _live(edge.src.dims[dim], plan), _live(edge.dst.dims[dim], plan)
            short, long = sorted((src, dst), key=len)
            if long[: len(short)] != short or len(long) - len(short) > 1:
                bag.add(findings.out_of_order(edge, dim, resolved))


def _live(axes: tuple[str, ...], plan: Plan) -> tuple[str, ...]:
    return tuple(axis for axis in axes if plan.mesh.size(axis) > 1)


def needed_whole(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """What a module computes over as a whole is whole inside it, or a strategy sees to it."""
    helped = {axis for use in resolved.spec.strategies for axis in strategy_axes(use.plugin)}
    for boundary in resolved.model.boundaries:
        for name in boundary.whole:
            axes = _live(resolved.axes(boundary.module, name), plan)
            left = tuple(axis for axis in axes if axis not in helped)
            if left:
                bag.add(findings.needs_whole(name, left, boundary.module, resolved))


def weights_agree(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """A tensor is placed as the module that computes with it."""
    for module, tensors in resolved.model.held.items():
        for tensor in tensors:
            for factors in tensor.dims:
                if resolved.axes(tensor.fqn, factors[0]) != resolved.axes(module, factors[0]):
                    bag.add(findings.weight_apart(factors[0], tensor.fqn, module, resolved))


def store_is_free(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """An axis that cuts a tensor while computing does not cut it again at rest."""
    store = resolved.spec.store
    for word in store.over if store is not None else ():
        cut = [t.fqn for t in plan.tensors if word.value in t.stored and any(word.value in d.axes for d in t.dims)]
        if cut:
            bag.add(findings.store_cuts(word, cut, resolved))
