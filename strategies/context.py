"""What strategies over a cut sequence share: the modules that look over all of it, and the sizes that fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import Literal

from meshlang.diagnostics import Diagnostic, Edit, Help
from meshlang.plan.words import listed
from meshlang.strategy import Context, Edge, Plan, Strategy

#: The name of the tokens of a sequence.
SEQUENCE = ("seq",)

Balance = Literal["head_tail", "none"]


#: What the keys of a strategy's table say of themselves.
AXIS = {"says": "mesh axis that cuts the sequence"}
BALANCE = {"says": "head_tail: rank r of P takes parts r and 2P - 1 - r of 2P; none: part r of P"}


@dataclass(frozen=True, kw_only=True)
class Looks:
    """A module that looks over a whole sequence which an axis cuts: its ports that carry that sequence."""

    module: str
    whole: tuple[Edge, ...]
    others: tuple[Edge, ...]
    output: Edge | None

    @property
    def edges(self) -> tuple[Edge, ...]:
        """All of them."""
        return (*self.others, *self.whole, *((self.output,) if self.output is not None else ()))


def sequence_dim(edge: Edge) -> int | None:
    """Which tensor dim of an edge is the sequence."""
    return edge.names.index(SEQUENCE) if SEQUENCE in edge.names else None


def is_cut(edge: Edge, axis: str) -> bool:
    """Whether the axis cuts the sequence on the module's side of an edge."""
    dim = sequence_dim(edge)
    layout = edge.src if edge.port == "output" else edge.dst
    return dim is not None and axis in layout.dims[dim]


def looking(plan: Plan, axis: str) -> tuple[Looks, ...]:
    """Every module that looks over the whole of a sequence that the axis cuts."""
    ports: dict[str, list[Edge]] = {}
    for edge in plan.edges:
        if is_cut(edge, axis):
            ports.setdefault(edge.module, []).append(edge)
    return tuple(found for module, edges in ports.items() if (found := _looks(module, edges)).whole)


def _looks(module: str, edges: Sequence[Edge]) -> Looks:
    inputs = [edge for edge in edges if edge.port != "output"]
    return Looks(
        module=module,
        whole=tuple(edge for edge in inputs if SEQUENCE[0] in edge.whole),
        others=tuple(edge for edge in inputs if SEQUENCE[0] not in edge.whole),
        output=next((edge for edge in edges if edge.port == "output"), None),
    )


def rewritten(plan: Plan, edges: Iterable[Edge]) -> Plan:
    """The plan with these edges in place of those of the same module and port."""
    new = {(edge.module, edge.port): edge for edge in edges}
    return replace(plan, edges=tuple(new.get((edge.module, edge.port), edge) for edge in plan.edges))


def uncut(edge: Edge, axis: str) -> Edge:
    """An input gathered over the axis as it comes in; its gradient is then a sum over the axis."""
    dims = tuple(tuple(each for each in axes if each != axis) for axes in edge.dst.dims)
    return replace(edge, dst=replace(edge.dst, dims=dims, grad=(*edge.dst.grad, axis)))


# Constraints


def carries_sequence(strategy: Strategy, context: Context) -> Iterator[Diagnostic]:
    """The axis is one of the mesh, cuts the sequence and nothing else, and some module looks over the whole of it."""
    plan, axis = context.plan, strategy.axis
    if axis not in plan.mesh.names:
        have = ", ".join(plan.mesh.names) or "no axis"
        yield context.finding("unknown-axis", f"`{axis}` is no axis of the mesh", key="axis", notes=(have,))
        return
    role = plan.role(axis)
    if role != "context":
        message = f"`{axis}` carries {_CARRIED[role]}, and `{name(context)}` needs an axis for the sequence alone"
        yield replace(
            context.finding("strategy-axis", message, key="axis", notes=tuple(_how_to_cut(plan, axis))),
            help=tuple(_cutting_it(plan, axis, context)),
        )
    elif not looking(plan, axis):
        message = f"no module looks over the whole of a sequence that `{axis}` cuts: there is nothing to do"
        yield context.finding("strategy-axis", message, key="axis", notes=tuple(_streams(plan)))


def _how_to_cut(plan: Plan, axis: str) -> Iterator[str]:
    """A note on what makes an axis one for the sequence, where it carries something else."""
    if plan.role(axis) != "none":
        have = listed(plan.axes_of("context"))
        yield f"[place] names such an axis for `seq` alone; here {f'that is {have}' if have else 'there is none'}"


def _cutting_it(plan: Plan, axis: str, context: Context) -> Iterator[Help]:
    """Another axis, which cuts the sequence; or a line that lets this one cut it, which carries nothing yet."""
    written, others = context.table.fields.get("axis"), plan.axes_of("context")
    if written is not None and others:
        edits = tuple(Edit(span=written.span, text=f'"{other}"') for other in others)
        yield Help(text="`axis` may be {} here", edits=edits, values=tuple(f'"{other}"' for other in others))
    if plan.role(axis) == "none":
        source, line = context.table.name.span.source, f'seq = "{axis}"'
        table = re.search(r"^\[place\][^\n]*\n", source.text, re.MULTILINE)
        at, text = (len(source.text), f"\n[place]\n{line}\n") if table is None else (table.end(), f"{line}\n")
        yield Help(
            text=f"`{line}` in [place] lets it cut the sequence", edits=(Edit(span=source.span(at, at), text=text),)
        )


def _streams(plan: Plan) -> Iterator[str]:
    """A note where what is looked over are rows of several streams of a sequence, of which this knows no order."""
    rows = {names for edge in plan.edges if edge.whole for names in edge.names if names[0] == "seq" and len(names) > 1}
    for names in sorted(rows):
        yield f"`{plan.model}` looks over ({' '.join(names)}) together: `csbp` and `combined_context` cut those"


_CARRIED = {
    "data": "the batch",
    "tensor": "parts of weights",
    "pipeline": "stages",
    "none": "nothing",
}


def balanced(strategy: Strategy, balance: Balance, context: Context) -> Iterator[Diagnostic]:
    """Head and tail are of equal length on each rank, also where another axis cuts each rank's tokens again."""
    plan, ranks, seq = context.plan, context.plan.mesh.size(strategy.axis), context.plan.sizes.seq
    inner = inner_parts(plan, strategy.axis)
    parts = ranks * lcm(2, inner)
    if balance != "head_tail" or seq is None or seq % parts == 0 or ranks == 1:
        return
    note = f"`{strategy.axis}` = {ranks} ranks take a head and a tail each"
    if inner > 1:
        note += f", and their tokens are cut in {inner} again"
    below, above = seq // parts * parts, -(-seq // parts) * parts
    fits = " or ".join(str(size) for size in (below, above) if size)
    finding = numbers(context, f"`seq` = {seq} does not divide into {parts} equal parts", note, f"`seq` may be {fits}")
    written = context.table.fields.get("balance")
    if written is not None:
        help_ = Help(text='`balance` may be "none" here', edits=(Edit(span=written.span, text='"none"'),))
        finding = replace(finding, help=(help_,))
    yield finding


def inner_parts(plan: Plan, axis: str) -> int:
    """Into how many parts other axes cut the tokens of one rank of `axis`, at most."""
    most = 1
    for edge in plan.edges:
        dim = sequence_dim(edge)
        if dim is None:
            continue
        for axes in (edge.src.dims[dim], edge.dst.dims[dim]):
            if axis in axes:
                most = max(most, plan.mesh.product(axes) // plan.mesh.size(axis))
    return most


def numbers(context: Context, message: str, *notes: str) -> Diagnostic:
    """A finding about sizes that do not fit, at the strategy's axis."""
    return context.finding("strategy-numbers", message, key="axis", notes=notes)


def name(context: Context) -> str:
    """The name that the strategy is installed under."""
    return context.table.name.value
