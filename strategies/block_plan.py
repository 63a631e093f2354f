"""What both strategies over two streams share: the modules, the bytes, and a plan's account of its blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from meshlang.diagnostics import Edit, Help, counted
from meshlang.strategy import DTYPE_BYTES, Blocks, Collective, Context, Diagnostic, Edge, Plan, Saved, Strategy

from .block_layout import Streams
from .context import Looks, looking

CallKind = Literal["all_gather", "reduce_scatter", "send"]
Pass = Literal["forward", "backward"]

#: Kind, pass, what is sent, tokens of the larger side, calls.
Call = tuple[CallKind, Pass, str, int, int]

#: What computes attention; "auto" is flex on a GPU and flash on a CPU.
Kernel = Literal["auto", "flex", "flash", "reference"]
KERNEL = {"says": "what computes attention: flex and flash are fast on a GPU and a CPU, auto takes that one"}

#: What has names and a shape.
Value = TypeVar("Value", Edge, Saved)

#: The rows of both streams, as a card writes them, and those of them that go on from attention.
ROWS, KEPT = ("seq", "stream"), ("seq", "kept")


def attending(plan: Plan, axis: str) -> tuple[Looks, ...]:
    """Every module that looks over the whole of both streams, which the axis cuts."""
    both = (edge for edge in plan.edges if ROWS in edge.names or KEPT in edge.names)
    short = replace(plan, edges=tuple(_as_sequence(edge) for edge in both))
    return looking(short, axis)


def _as_sequence(edge: Edge) -> Edge:
    """The same edge with its rows called a sequence."""
    return replace(edge, names=tuple(("seq",) if names in (ROWS, KEPT) else names for names in edge.names))


def carries_streams(strategy: Strategy, context: Context) -> Iterator[Diagnostic]:
    """The axis is one of the mesh, is the only one that cuts the sequence, and the model has both streams."""
    plan, axis = context.plan, strategy.axis
    name = context.table.name.value
    if axis not in plan.mesh.names:
        have = ", ".join(plan.mesh.names) or "no axis"
        yield context.finding("unknown-axis", f"`{axis}` is no axis of the mesh", key="axis", notes=(have,))
    elif not any(ROWS in edge.names for edge in plan.edges):
        message = f"`{name}` needs a model with a clean and a corrupted stream, and `{plan.model}` has one"
        yield context.finding("strategy-axis", message, key="axis", notes=("its card has no `(seq stream)`",))
    elif plan.role(axis) != "context" or not attending(plan, axis):
        message = f"`{name}` cuts `seq` over `{axis}` by itself, and here the axis does not cut it, or cuts more"
        note = 'no line for `seq` is needed; under sequence parallelism it is `seq = ["AXIS", "tp"]`'
        yield context.finding("strategy-axis", message, key="axis", notes=(note,))
    else:
        yield from _alone(strategy, context)


def _alone(strategy: Strategy, context: Context) -> Iterator[Diagnostic]:
    """No second axis is a context axis, and no head or row is cut unevenly by one inside."""
    plan, ranks = context.plan, context.plan.mesh.size(strategy.axis)
    others = [a for a in plan.axes_of("context") if a != strategy.axis and plan.mesh.size(a) > 1]
    for other in others if ranks > 1 else ():
        message = f"`{other}` = {plan.mesh.size(other)} and `{strategy.axis}` = {ranks} both cut the sequence"
        note = f"`context` of `{strategy.axis}` says how many ranks share one clean sequence"
        yield context.finding("block-and-context", message, key="axis", notes=(note,))


def sized(strategy: Strategy, block_size: int, context: Context) -> Iterator[Diagnostic]:
    """The sequence has a length, and whole blocks, at least one a rank."""
    ranks, seq = context.plan.mesh.size(strategy.axis), context.plan.sizes.seq
    if seq is None or context.plan.sizes.batch is None:
        message = f"which rank has what is not known without `{'batch' if seq else 'seq'}` in [sizes]"
        yield context.finding("sizes-needed", message, key="block_size")
    elif block_size < 1 or seq % block_size:
        fits = [size for size in _around(seq, block_size) if size]
        message = f"`seq` = {seq} does not divide into blocks of {block_size} tokens"
        yield offered(context.finding("block-size", message, key="block_size"), "block_size", fits, context)
    elif seq // block_size < ranks:
        count = seq // block_size
        have = f"{counted(count, 'block')} of {counted(block_size, 'token')}"
        message = f"a sequence has {have}, and each of `{strategy.axis}` = {ranks} ranks needs one"
        yield context.finding("too-few-blocks", message, key="block_size")


def evenly_moved(strategy: Strategy, block_size: int, context: Context) -> Iterator[Diagnostic]:
    """Where a tensor axis moves rows, all ranks have as many blocks."""
    plan, ranks, seq = context.plan, context.plan.mesh.size(strategy.axis), context.plan.sizes.seq
    assert seq is not None
    count = seq // block_size
    for axis in plan.axes_of("tensor") if count % ranks else ():
        if plan.mesh.size(axis) > 1:
            message = (
                f"{count} blocks do not divide over `{strategy.axis}` = {ranks}, and `{axis}` moves rows of each rank"
            )
            note = "a plan has one size for all ranks: where a tensor axis moves rows, all ranks have as many blocks"
            yield context.finding("block-uneven", message, key="axis", notes=(note,))


def cuts_rows(plan: Plan, axis: str) -> bool:
    """Whether an axis cuts the rows of both streams somewhere."""
    return any(
        names in (ROWS, KEPT) and (axis in before or axis in after)
        for edge in plan.edges
        for names, before, after in zip(edge.names, edge.src.dims, edge.dst.dims, strict=True)
    )


def offered(finding: Diagnostic, key: str, values: Iterable[int], context: Context) -> Diagnostic:
    """The finding with what a key may be instead."""
    written, fits = context.table.fields.get(key), [str(value) for value in values]
    if written is None or not fits:
        return finding
    edits = tuple(Edit(span=written.span, text=value) for value in fits)
    return replace(finding, help=(Help(text=f"`{key}` may be {{}} here", edits=edits, values=tuple(fits)),))


def _around(seq: int, size: int) -> tuple[int, int]:
    """The divisors of `seq` next to a size, 0 where there is none near enough to be looked for."""
    most = 4096
    size = max(1, min(size, seq))
    below = next((each for each in range(size, max(0, size - most), -1) if seq % each == 0), 0)
    above = next((each for each in range(size + 1, min(seq, size + most) + 1) if seq % each == 0), 0)
    return below, above


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """What a rank sends of each attention's keys and values.

    Attributes:
        calls: kind, pass, what, tokens of the larger side, calls.
        forward, backward: tokens of keys and values that come to a rank in a pass, on average, as a fraction.
        kept: tokens of keys and values that a rank keeps for its backward, besides those of its rows.
    """

    calls: tuple[Call, ...]
    forward: tuple[int, int]
    backward: tuple[int, int]
    kept: int = 0


@dataclass(frozen=True, kw_only=True)
class Views:
    """Corrupted copies of a sequence: `towers` with a clean copy each, of which each has `beside` views beside it."""

    towers: int
    beside: int

    @property
    def count(self) -> int:
        """Of one sequence in all."""
        return self.towers * self.beside

    def shared(self, share: bool | None) -> Views:
        """All beside one clean copy, each beside its own, or as they are."""
        if share is None:
            return self
        return Views(towers=1, beside=self.count) if share else Views(towers=self.count, beside=1)


def views_of(plan: Plan) -> Views:
    """How the model's data comes, from the sizes of its values."""
    edge = next(edge for edge in plan.edges if ROWS in edge.names)
    sizes = dict(zip(edge.names, edge.shape, strict=True))
    rows, seq, batch = sizes[ROWS], plan.sizes.seq, plan.sizes.batch
    samples = next((size for names, size in sizes.items() if names[0] == "batch"), None)
    assert rows is not None
    assert seq is not None
    towers = 1 if samples is None or batch is None else samples // batch
    return Views(towers=towers, beside=rows // seq - 1)


def planned(
    plan: Plan, axis: str, streams: Streams, exchange: Exchange, views: Views, *, prune_last: bool = False
) -> Plan:
    """The plan with the account of blocks and what attention sends, and with the rows that these views have."""
    plan = replace(
        plan,
        edges=tuple(_viewed(edge, plan, views) for edge in plan.edges),
        saved=tuple(_viewed(saved, plan, views) for saved in plan.saved),
    )
    modules = attending(plan, axis)
    if prune_last:
        plan = _pruned(plan, [each.module for each in modules], views)
    looks = {each.module for each in modules}
    others = tuple(saved for saved in plan.saved if saved.module not in looks)
    saved = tuple(each for module in modules for each in _saved(plan, module, axis, exchange.kept))
    sent = tuple(call for each in modules for call in _calls(plan, each, axis, exchange))
    width = _token_bytes(plan, modules[0], axis)
    blocks = Blocks(
        axis=axis,
        size=streams.ranks,
        context=streams.context,
        block_size=streams.block_size,
        sequence=streams.tokens,
        views=views.count,
        shared=views.beside == views.count,
        owners=tuple(_blocks(runs, streams.block_size) for runs in streams.corrupted),
        clean=streams.clean,
        rows=streams.rows(views.count, views.towers),
        pairs=streams.pairs(views.count, views.towers),
        last_rows=streams.rows(views.count, 0) if prune_last else (),
        last_pairs=streams.pairs(views.count, 0) if prune_last else (),
        forward=_received(exchange.forward, width, plan),
        backward=_received(exchange.backward, width, plan),
    )
    return replace(plan, block=blocks, collectives=(*plan.collectives, *sent), saved=(*others, *saved))


def _saved(plan: Plan, each: Looks, axis: str, kept: int) -> Iterator[Saved]:
    """Queries, keys, values, the output as it is merged and as it goes on, logs of sums; keys that came."""
    yield from (Saved(module=each.module, port=edge.port) for edge in (*each.others, *each.whole))
    yield Saved(module=each.module, port="output", count=2)
    out = plan.by_port[each.module, "output"]
    yield Saved(module=each.module, names=out.names[:-1], shape=out.shape[:-1], cuts=out.src.dims[:-1], dtype="float32")
    for edge in each.whole if kept else ():
        at = edge.names.index(("seq",))
        shape = (*edge.shape[:at], kept, *edge.shape[at + 1 :])
        cuts = tuple(tuple(a for a in axes if a != axis) for axes in edge.dst.dims)
        yield Saved(module=each.module, names=edge.names, shape=shape, cuts=cuts)


def _blocks(runs: tuple[tuple[int, int], ...], size: int) -> tuple[tuple[int, int], ...]:
    return tuple((start // size, stop // size) for start, stop in runs)


def _viewed(edge: Value, plan: Plan, views: Views) -> Value:
    """A value with the sequences and rows of these views."""
    seq, batch = plan.sizes.seq, plan.sizes.batch
    assert seq is not None
    known = {"views": views.beside, "stream": views.beside + 1, "kept": views.beside + 1}

    def size(names: tuple[str, ...], old: int | None) -> int | None:
        if names[0] == "batch" and batch is not None and old is not None:
            return batch * views.towers
        return seq * known[names[1]] if len(names) == 2 and names[0] == "seq" and names[1] in known else old

    return replace(edge, shape=tuple(size(n, s) for n, s in zip(edge.names, edge.shape, strict=True)))


def _pruned(plan: Plan, attentions: Sequence[str], views: Views) -> Plan:
    """The plan whose last attention, and what comes after it, has corrupted rows only."""
    earlier = tuple(f"{_layer(each, attentions[-1])}." for each in attentions[:-1])

    def shorter(edge: Value) -> Value:
        if KEPT not in edge.names or f"{edge.module}.".startswith(earlier):
            return edge
        sizes = zip(edge.names, edge.shape, strict=True)
        rows = tuple(size // (views.beside + 1) * views.beside if n == KEPT and size else size for n, size in sizes)
        return replace(edge, shape=rows)

    return replace(plan, edges=tuple(map(shorter, plan.edges)), saved=tuple(map(shorter, plan.saved)))


def _layer(module: str, other: str) -> str:
    """The outermost module around one that another is not in."""
    parts = module.split(".")
    same = next(index for index, pair in enumerate(zip(parts, other.split("."), strict=False)) if pair[0] != pair[1])
    return ".".join(parts[: same + 1])


def _calls(plan: Plan, each: Looks, axis: str, exchange: Exchange) -> Iterator[Collective]:
    width = _token_bytes(plan, each, axis)
    for kind, pass_, what, tokens, count in exchange.calls:
        yield Collective(
            kind=kind,
            axis=axis,
            where=f"{each.module} {what}",
            pass_=pass_,
            bytes=None if width is None else width * tokens,
            count=count * plan.sizes.accumulation,
        )


def _token_bytes(plan: Plan, each: Looks, axis: str) -> int | None:
    """Of the keys and values of one token of every sequence of a rank."""
    total = 0
    for edge in each.whole:
        part = 1
        for names, size, axes in zip(edge.names, edge.shape, edge.dst.dims, strict=True):
            if names == ("seq",):
                continue
            if size is None:
                return None
            part *= size // plan.mesh.product([a for a in axes if a != axis])
        total += part
    return total * DTYPE_BYTES[plan.precision.compute]


def _received(tokens: tuple[int, int], width: int | None, plan: Plan) -> int | None:
    """Bytes of one microbatch. `passes` is not known yet where a pipeline's stages are not: its microbatches are."""
    if width is None:
        return None
    microbatches = (plan.pipeline.microbatches or 1) if plan.pipeline is not None else 1
    over, under = tokens
    return round(width * over / (under * microbatches * plan.sizes.accumulation))
