"""Laws of a plan, one function a law. A spec that breaks one gets a finding, with the place that did it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..diagnostics import Bag
from ..fold import template
from ..language.spec import PlaceRule
from . import cut_findings, findings
from .collectives import known_move, moves
from .ir import Edge, Plan, Tensor
from .resolved import Resolved


def verify(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """Every law, into the bag. Equal findings of different layers are one.

    One layer of each kind is looked at; all of them only to say where a law does not hold.
    """
    broken, short = Bag(), _one_of_each(plan, resolved)
    laws = (no_unfinished_sum, one_move_an_edge, inner_cuts_move, needed_whole)
    laws = (*laws, buffers_whole, made_of_whole, handed_on, weights_agree, store_is_free)
    for law in laws:
        law(short, resolved.folded, broken)
    for law in laws if len(broken) else ():
        law(plan, resolved, bag)


def _one_of_each(plan: Plan, resolved: Resolved) -> Plan:
    """The plan with one layer of each kind; what a strategy laid out otherwise is a kind of its own."""
    stands_in = resolved.stand_ins.get

    def new_edge(edge: Edge) -> bool:
        first = plan.by_port.get((stands_in(edge.module, edge.module), edge.port), edge)
        return first is edge or vars(first) | {"module": edge.module} != vars(edge)

    def new_tensor(tensor: Tensor) -> bool:
        first = plan.by_fqn.get(stands_in(tensor.fqn, tensor.fqn), tensor)
        return first is tensor or vars(first) | {"fqn": tensor.fqn} != vars(tensor)

    edges = tuple(edge for edge in plan.edges if new_edge(edge))
    return replace(plan, edges=edges, tensors=tuple(tensor for tensor in plan.tensors if new_tensor(tensor)))


def no_unfinished_sum(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """No value goes on from a boundary as a sum that nobody finishes."""
    for axis in plan.mesh.names:
        edges = [edge for edge in plan.edges if edge.dst.kind(axis) == "P" and plan.mesh.size(axis) > 1]
        if edges:
            bag.add(cut_findings.unfinished_sum(edges, axis, resolved))


def one_move_an_edge(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """A boundary redistributes over one axis at most, by a move that has a meaning."""
    found: dict[tuple[object, ...], tuple[PlaceRule | None, list[str], list[Edge]]] = {}
    for edge in plan.edges:
        made = moves(edge, plan.mesh)
        axes = [move.axis for move in made]
        if len(made) > 1:
            rule = cut_findings.rule_at(edge, resolved)
            found.setdefault((id(rule), *axes), (rule, axes, []))[2].append(edge)
        for move in made:
            assert known_move(move) or edge.dst.kind(move.axis) == "P", f"{edge.module} {edge.port}: {move}"
    for rule, axes, edges in found.values():
        bag.add(cut_findings.moves_twice(edges, axes, rule, resolved))


def inner_cuts_move(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """Where a dim is cut by several axes, only the innermost comes or goes at a boundary."""
    found: dict[tuple[object, ...], tuple[int, list[Edge]]] = {}
    for edge in plan.edges:
        for dim, factors in enumerate(edge.names):
            src, dst = _live(edge.src.dims[dim], plan), _live(edge.dst.dims[dim], plan)
            short, long = sorted((src, dst), key=len)
            if long[: len(short)] != short or len(long) - len(short) > 1:
                found.setdefault((factors[0], frozenset((src, dst))), (dim, []))[1].append(edge)
    for dim, edges in found.values():
        bag.add(cut_findings.out_of_order(edges, dim, resolved))


def _live(axes: tuple[str, ...], plan: Plan) -> tuple[str, ...]:
    return tuple(axis for axis in axes if plan.mesh.size(axis) > 1)


def needed_whole(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """What a module computes over as a whole is whole inside it, or a strategy sees to it."""
    helped = {use.axis for use in plan.strategies if use.ops is not None}
    found: dict[tuple[object, ...], tuple[PlaceRule, list[str]]] = {}
    for edge in plan.edges:
        for factors, axes in zip(edge.names, edge.dst.dims, strict=True):
            rule = resolved.rules.decide(edge.module, factors[0]).rule
            for axis in _live(axes, plan):
                if factors[0] in edge.whole and axis not in helped and rule is not None:
                    key = (factors[0], axis, id(rule))
                    modules = found.setdefault(key, (rule, []))[1]
                    if edge.module not in modules:
                        modules.append(edge.module)
    for (name, axis, _), (rule, modules) in found.items():
        bag.add(cut_findings.needs_whole(str(name), str(axis), rule, modules, resolved))


def made_of_whole(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """What the model makes from a length is made where that length is known: not of a part that only its rank sees."""
    for part in made_of_parts(plan, resolved):
        if part.axis not in plan.axes_of("tensor"):
            bag.add(cut_findings.made_of_part(part, resolved))


def made_of_parts(plan: Plan, resolved: Resolved) -> Iterator[cut_findings.MadeOfPart]:
    """Inputs that the model makes, with each axis that cuts among the modules beside it what it makes them from.

    Each rank makes them for its own share of the batch.
    """
    for boundary in resolved.model.boundaries:
        scope = resolved.model.scopes.get(boundary.module, "")
        for port, dims in boundary.inputs:
            for name in {factors[0] for factors in dims} - {"batch"} if port in boundary.made else ():
                decision = resolved.rules.decide(scope, name)
                for axis in _live(decision.axes, plan):
                    assert decision.rule is not None
                    yield cut_findings.MadeOfPart(
                        module=boundary.module, input=port, name=name, axis=axis, rule=decision.rule
                    )


def buffers_whole(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """A buffer is cut by names of values around it, or not: from a cut of its own, as of a table, nothing follows."""
    values: dict[str, set[str]] = {}
    for edge in plan.edges:
        values.setdefault(edge.module, set()).update(factors[0] for factors in edge.names)
    found: dict[tuple[object, ...], tuple[PlaceRule, list[str]]] = {}
    for tensor in plan.tensors:
        for dim in tensor.dims if tensor.kind == "buffer" else ():
            name, rule = dim.names[0], resolved.rules.decide(tensor.fqn, dim.names[0]).rule
            around = any(name in values.get(module, ()) for module in _modules_around(tensor.fqn))
            for axis in () if around else _live(dim.axes, plan):
                if rule is not None:
                    found.setdefault((name, axis, id(rule)), (rule, []))[1].append(tensor.fqn.rpartition(".")[0])
    for (name, axis, _), (rule, modules) in found.items():
        bag.add(cut_findings.needs_whole(str(name), str(axis), rule, list(dict.fromkeys(modules)), resolved))


def _modules_around(fqn: str) -> Iterator[str]:
    while fqn:
        fqn = fqn.rpartition(".")[0]
        yield fqn


def handed_on(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """A value that goes on among modules which take sums of gradients is their own input, or a card forgot a flow.

    A result that may be the output of the module around is not the module's input, though it has
    the same dims: without a flow, its gradient would be laid out as the input's.
    """
    for edge in plan.edges:
        scope = resolved.model.scopes.get(edge.module, "")
        live = [axis for axis in edge.dst.grad if plan.mesh.size(axis) > 1]
        if edge.port == "output" and live and scope and (edge.module, "output") not in resolved.model.flow:
            bag.add(cut_findings.flow_missing(edge, scope, live[0], resolved))


def weights_agree(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """A tensor is placed as the module that computes with it."""
    found: dict[tuple[object, ...], tuple[PlaceRule, list[tuple[str, str]]]] = {}
    for module, tensors in resolved.model.held.items():
        for tensor in tensors:
            for name, *_ in tensor.dims:
                own, around = (resolved.rules.decide(fqn, name) for fqn in (tensor.fqn, module))
                rule = own.rule or around.rule
                if own.axes != around.axes and rule is not None:
                    key = (template(tensor.fqn), name, id(rule), own.axes, around.axes)
                    found.setdefault(key, (rule, []))[1].append((tensor.fqn, module))
    for (_, name, *_), (rule, pairs) in found.items():
        bag.add(findings.weight_apart(rule, str(name), pairs, resolved))


def store_is_free(plan: Plan, resolved: Resolved, bag: Bag) -> None:
    """An axis that cuts a tensor while computing does not cut it again at rest."""
    store = resolved.spec.store
    for word in store.over if store is not None else ():
        cut = [t.fqn for t in plan.tensors if word.value in t.stored and any(word.value in d.axes for d in t.dims)]
        if cut:
            bag.add(cut_findings.store_cuts(word, cut, resolved))
