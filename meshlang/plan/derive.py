"""Resolved -> Plan: what follows from where the dimensions are.

Column and row parallel are just which side carries the cut name. Inside a module without modules
of its own, the names of its inputs, its tensors and its output span the space that it computes
over; an axis that cuts one of these names

* cuts the output, when the output carries the name;
* leaves the output an unfinished sum, when it does not (the name is contracted);
* leaves the gradient of every input and tensor without the name an unfinished sum.

Comparing what a module gives with what the modules around it take gives every redistribution.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

from ..card.model import Boundary, Factors, Port, TensorEntry, parent
from ..mesh import Mesh
from ..placement import Layout
from .ir import Dim, Edge, Loss, PipelineUse, Plan, Saved, StrategyUse, Tensor, Unit
from .resolved import Resolved, known_sizes
from .roles import cutting_weights, roles


def start(resolved: Resolved) -> Plan:
    """The plan before strategies rewrite it: every tensor, edge and unit, no collective yet.

    Layers that are alike are derived once.
    """
    values = _Values(resolved.folded)
    tensors = tuple(_tensors(resolved, values))
    return Plan(
        model=resolved.model.name,
        mesh=resolved.mesh,
        roles=tuple(roles(resolved.folded)),
        sizes=resolved.sizes,
        precision=resolved.precision,
        tensors=tensors,
        edges=tuple(_edges(resolved, values)),
        units=_units(resolved, tensors),
        collectives=(),
        state_bytes=None,
        loss=_loss(resolved, values),
        pipeline=_pipeline(resolved),
        recompute=recomputed(resolved),
        saved=tuple(_saved(resolved, values)),
    )


def _edges(resolved: Resolved, values: _Values) -> Iterator[Edge]:
    first: dict[str, list[Edge]] = {}
    for boundary in values.resolved.model.boundaries:
        first[boundary.module] = [values.edge(boundary, port, dims) for port, dims in boundary.ports()]
    for boundary in resolved.model.boundaries:
        for edge in first[resolved.stand_ins[boundary.module]]:
            yield edge if edge.module == boundary.module else replace(edge, module=boundary.module)


@dataclass(frozen=True)
class _Values:
    """Layouts of values inside and outside of modules."""

    resolved: Resolved

    @cached_property
    def leaves(self) -> frozenset[str]:
        """Modules with a boundary and none inside them."""
        model = self.resolved.model
        return frozenset(model.by_module) - frozenset(model.scopes.values())

    @cached_property
    def children(self) -> Mapping[str, list[Boundary]]:
        """Scope -> the boundaries directly inside it."""
        found: dict[str, list[Boundary]] = {}
        for boundary in self.resolved.model.boundaries:
            if boundary.module:
                found.setdefault(self.resolved.model.scopes[boundary.module], []).append(boundary)
        return found

    @cached_property
    def sources(self) -> Mapping[Port, Port]:
        """Flow, read backwards."""
        return {second: first for first, second in self.resolved.model.flow.items()}

    @cached_property
    def weight_axes(self) -> frozenset[str]:
        """Over these, what the model makes itself is whole."""
        return cutting_weights(self.resolved)

    def cuts(self, module: str, dims: tuple[Factors, ...]) -> tuple[tuple[str, ...], ...]:
        """For each dim the axes that cut it inside `module`."""
        return tuple(self.resolved.axes(module, factors[0]) for factors in dims)

    def space(self, module: str) -> dict[str, tuple[str, ...]]:
        """Class of name -> the axes that cut it in what a leaf computes over."""
        boundary = self.resolved.model.by_module[module]
        dims = [d for _, ds in boundary.ports() for d in ds]
        dims += [d for tensor in self.resolved.model.held.get(module, ()) for d in tensor.dims]
        kin = self.resolved.model.kin
        return {kin(factors[0]): axes for factors in dims if (axes := self.resolved.axes(module, factors[0]))}

    def missing(self, module: str, dims: tuple[Factors, ...]) -> tuple[str, ...]:
        """Axes that cut the leaf's space in a name that `dims` lack, in mesh order."""
        here = {self.resolved.model.kin(name) for factors in dims for name in factors}
        axes = {axis for kin, cut in self.space(module).items() if kin not in here for axis in cut}
        return tuple(axis for axis in self.resolved.mesh.names if axis in axes)

    def summed(self, module: str, name: str, dims: tuple[Factors, ...]) -> tuple[str, ...]:
        """Axes over which the gradient of a leaf's own parameter is a sum.

        What is added to the output is no factor of the terms that the output is a sum of.
        """
        boundary = self.resolved.model.by_module[module]
        missing = self.missing(module, dims)
        if name.removeprefix(f"{module}." if module else "") not in boundary.added or boundary.output is None:
            return missing
        contracted = self.missing(module, boundary.output)
        return tuple(axis for axis in missing if axis not in contracted)

    def grad_inside(self, module: str, dims: tuple[Factors, ...]) -> tuple[str, ...]:
        """Axes over which the gradient of an input with these dims is a sum, inside `module`.

        For a module with modules inside: those over which it is a sum for each of them that takes
        such a value. Where they differ, the sum is finished at their own boundaries.
        """
        if module in self.leaves:
            return self.missing(module, dims)
        takers = [
            self.grad_inside(child.module, port_dims)
            for child in self.children.get(module, ())
            for _, port_dims in child.inputs
            if port_dims == dims
        ]
        return tuple(a for a in takers[0] if all(a in other for other in takers)) if takers else ()

    def inside(self, module: str, dims: tuple[Factors, ...]) -> Layout:
        """What a module takes in."""
        return Layout(dims=self.cuts(module, dims), grad=self.grad_inside(module, dims))

    def outside(self, scope: str, dims: tuple[Factors, ...]) -> Layout:
        """A value with these dims among the modules directly inside `scope`."""
        boundary = self.resolved.model.by_module.get(scope)
        own = boundary is not None and any(dims == taken for _, taken in boundary.inputs)
        return Layout(dims=self.cuts(scope, dims), grad=self.grad_inside(scope, dims) if own else ())

    def result(self, module: str, dims: tuple[Factors, ...]) -> Layout:
        """What a leaf gives."""
        return Layout(dims=self.cuts(module, dims), partial=self.missing(module, dims))

    def goes_on(self, module: str, dims: tuple[Factors, ...]) -> Layout:
        """What the output of `module` is turned into."""
        target = self.resolved.model.flow.get((module, "output"))
        if target is None:
            scope = self.resolved.model.scopes.get(module, "")
            return self.outside(scope, dims)
        other, port = target
        if port != "output":
            return self.inside(other, dims)
        return self.goes_on(other, dims) if other else Layout(dims=self.cuts(module, dims))

    def edge(self, boundary: Boundary, port: str, dims: tuple[Factors, ...]) -> Edge:
        """One port of one boundary, with both sides."""
        src, dst = self.sides(boundary.module, port, dims)
        sizes = known_sizes(self.resolved)
        shape = tuple(_product(sizes, factors) for factors in dims)
        here = {name for factors in dims for name in factors}
        looked = (*boundary.whole, *(name for head, name in boundary.whole_inputs if f"input.{head}" == port))
        whole = tuple(name for name in looked if name in here and port != "output")
        return Edge(module=boundary.module, port=port, names=dims, shape=shape, src=src, dst=dst, whole=whole)

    def sides(self, module: str, port: str, dims: tuple[Factors, ...]) -> tuple[Layout, Layout]:
        """(src, dst) of a port."""
        handed_on = self.sources.get((module, port))
        if port == "output":
            if handed_on is not None:
                layout = self.goes_on(handed_on[0], dims)
                return layout, layout
            dst = self.goes_on(module, dims)
            return (self.result(module, dims), dst) if module in self.leaves else (_plain(self.cuts(module, dims)), dst)
        target = self.resolved.model.flow.get((module, port))
        if target is not None and not module:
            layout = self.inside(target[0], dims)
            return layout, layout
        dst = self.inside(module, dims)
        if handed_on is not None:
            return dst, dst
        if port.removeprefix("input.") in self.resolved.model.by_module[module].made:
            return dst.whole_over(self.weight_axes), dst
        return self.outside(self.resolved.model.scopes[module], dims) if module else dst, dst


def _plain(cuts: tuple[tuple[str, ...], ...]) -> Layout:
    return Layout(dims=cuts)


def _product(sizes: Mapping[str, int], factors: Factors) -> int | None:
    total = 1
    for name in factors:
        if name not in sizes:
            return None
        total *= sizes[name]
    return total


def _tensors(resolved: Resolved, values: _Values) -> Iterator[Tensor]:
    over = _stored_over(resolved)
    first = {entry.fqn: _tensor(values, entry, over) for entry in values.resolved.model.tensors}
    for entry in resolved.model.tensors:
        tensor = first[resolved.stand_ins[entry.fqn]]
        yield tensor if tensor.fqn == entry.fqn else replace(tensor, fqn=entry.fqn)


def _stored_over(resolved: Resolved) -> tuple[str, ...]:
    store = resolved.spec.store
    words = {word.value for word in store.over} if store is not None else set()
    return tuple(axis for axis in resolved.mesh.names if axis in words)


def _tensor(values: _Values, entry: TensorEntry, over: tuple[str, ...]) -> Tensor:
    resolved = values.resolved
    grads: set[str] = set()
    for name, holder in zip((entry.fqn, *entry.tied), _holders(entry.module, entry.tied), strict=True):
        if entry.kind == "parameter" and holder in values.leaves:
            grads.update(values.summed(holder, name, entry.dims))
    store = resolved.spec.store
    excepted = store is not None and any(
        pattern.covers(name) for pattern in store.exceptions for name in (entry.fqn, *entry.tied)
    )
    return Tensor(
        fqn=entry.fqn,
        kind=entry.kind,
        dims=tuple(_dim(resolved, entry.fqn, factors) for factors in entry.dims),
        stored=over if entry.kind == "parameter" and entry.dims and not excepted else (),
        grad=tuple(axis for axis in resolved.mesh.names if axis in grads),
        tied=entry.tied,
    )


def _holders(module: str, tied: tuple[str, ...]) -> tuple[str, ...]:
    return (module, *(name.rpartition(".")[0] for name in tied))


def _dim(resolved: Resolved, fqn: str, factors: Factors) -> Dim:
    return Dim(
        names=factors,
        size=resolved.model.size(factors),
        units=resolved.model.sizes[factors[0]],
        axes=resolved.axes(fqn, factors[0]),
        origin=resolved.origin(fqn, factors[0]),
    )


def recomputed(resolved: Resolved) -> tuple[str, ...]:
    """The outermost modules that `[recompute]` names."""
    table = resolved.spec.recompute
    if table is None:
        return ()
    named = {m for m in resolved.model.by_module if m and any(pattern.covers(m) for pattern in table.modules)}
    return tuple(m for m in resolved.model.by_module if m in named and not _inside_of(m, named))


def _saved(resolved: Resolved, values: _Values) -> Iterator[Saved]:
    """As the card says; without it, whatever crosses the boundary of a module without modules inside."""
    if resolved.model.saved is None:
        for boundary in resolved.model.boundaries:
            if resolved.stand_ins[boundary.module] in values.leaves:
                yield from (Saved(module=boundary.module, port=port, rough=True) for port, _ in boundary.ports())
        return
    sizes = known_sizes(resolved)
    for entry in resolved.model.saved:
        yield Saved(
            module=entry.module,
            count=entry.count,
            port=entry.port,
            names=entry.dims,
            shape=tuple(_product(sizes, factors) for factors in entry.dims),
            cuts=_once(values.cuts(resolved.stand_ins[entry.module], entry.dims)),
            dtype=entry.dtype,
        )


def _once(cuts: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """An axis cuts the first of two dims of one name: queries, not keys."""
    return tuple(tuple(a for a in axes if all(a not in other for other in cuts[:i])) for i, axes in enumerate(cuts))


def _inside_of(module: str, named: Container[str]) -> bool:
    """Whether a module around this one is among the named."""
    above = parent(module)
    while above and above not in named:
        above = parent(above)
    return bool(above)


def _units(resolved: Resolved, tensors: tuple[Tensor, ...]) -> tuple[Unit, ...]:
    """The card's units in order; what lies in none of them travels with the whole model."""
    last = next((module for (module, _), target in resolved.model.flow.items() if target == ("", "output")), None)
    owner = {module: unit for unit in reversed(resolved.model.units) for module in unit}
    mine: dict[tuple[str, ...], list[str]] = {unit: [] for unit in resolved.model.units}
    for tensor in tensors:
        if tensor.kind == "parameter":
            mine.setdefault(_owner(tensor.fqn, owner), []).append(tensor.fqn)
    return tuple(
        Unit(modules=unit, tensors=tuple(fqns), after_forward=_after(resolved, last in unit or unit == _REST))
        for unit, fqns in mine.items()
    )


#: The unit of what lies in none of the card's.
_REST = ("",)


def _owner(fqn: str, owner: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    while fqn:
        fqn = parent(fqn)
        if fqn in owner:
            return owner[fqn]
    return _REST


def _after(resolved: Resolved, last: bool) -> Literal["free", "keep"]:
    """As the spec says; else freed, but for the unit that the backward starts with, and under a pipeline."""
    store = resolved.spec.store
    if store is not None and store.after_forward is not None:
        return "free" if store.after_forward.value == "free" else "keep"
    return "keep" if last or resolved.spec.pipeline is not None else "free"


def _loss(resolved: Resolved, values: _Values) -> Loss | None:
    loss = resolved.model.loss
    if loss is None:
        return None
    sizes = known_sizes(resolved)
    producer = values.sources.get(("", "output"), ("", ""))[0]
    return Loss(
        shape=tuple(_product(sizes, factors) for factors in loss.logits),
        layout=values.goes_on(producer, loss.logits),
        vocab=next(i for i, factors in enumerate(loss.logits) if factors[0] == loss.vocab),
    )


def _pipeline(resolved: Resolved) -> PipelineUse | None:
    table = resolved.spec.pipeline
    if table is None:
        return None
    numbers = {key: getattr(table, key) for key in ("microbatches", "subsequences", "chunks", "split")}
    return PipelineUse(
        schedule=table.schedule.name.value,
        **{key: word.value for key, word in numbers.items() if word is not None},
    )


def strategy_use(name: str, plugin: object, ops: str | None) -> StrategyUse:
    """A strategy as plain data."""
    options = tuple((key, value) for key, value in keys_of(plugin) if key != "axis")
    return StrategyUse(name=name, axis=str(getattr(plugin, "axis", "")), options=options, ops=ops)


def keys_of(plugin: Any) -> Iterator[tuple[str, Any]]:
    """The keys of a plugin's table, as they hold: written, or by default."""
    yield from ((each.name, getattr(plugin, each.name)) for each in fields(plugin) if each.init)


def local_numel(shape: tuple[int | None, ...], layout: Layout, mesh: Mesh) -> int | None:
    """Elements of the fullest rank's part; None where a size is not known."""
    total = 1
    for size, axes in zip(shape, layout.dims, strict=True):
        if size is None:
            return None
        total *= -(-size // mesh.product(axes))
    return total
