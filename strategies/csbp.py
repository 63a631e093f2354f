"""`[strategy.csbp]`: corrupted blocks stay with their rank; keys and values of the clean stream are shared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, final

from meshlang.plan.words import left_out
from meshlang.strategy import Context, Diagnostic, Plan, Strategy

from .block_layout import Streams, block_streams, length
from .block_plan import (
    KERNEL,
    Call,
    Exchange,
    Kernel,
    Pass,
    carries_streams,
    cuts_rows,
    evenly_moved,
    offered,
    planned,
    sized,
    views_of,
)

Transport = Literal["gather", "ring"]


@final
@dataclass(frozen=True, kw_only=True)
class CSBP(Strategy):
    """Context-sharded block parallelism for block diffusion (arXiv 2609.19242).

    Each rank has whole blocks of the corrupted stream, which attend to themselves and to the clean
    stream before them, and never leave it. The clean stream is cut over `context` ranks: the ranks
    of the axis at most, one at least, where every rank has all of it and nothing is sent (BP).
    Parameters may be stored over the axis, and their gradients are summed over all of it.
    """

    ops: ClassVar[str | None] = "meshlang_strategies.csbp_ops"
    places: ClassVar[tuple[str, ...]] = ("seq",)

    axis: str = field(metadata={"says": "mesh axis that carries the blocks"})
    block_size: int = field(metadata={"says": "tokens of a block"})
    context: int | None = field(
        default=None, metadata={"says": "ranks that share one clean sequence; all of the axis without it"}
    )
    transport: Transport = field(
        default="gather", metadata={"says": "gather: all clean keys at once; ring: one rank's at a time"}
    )
    window: int | None = field(default=None, metadata={"says": "attention sees only so many tokens back"})
    share_clean: bool | None = field(
        default=None, metadata={"says": "one clean stream for all views of a sequence; without it, as they come"}
    )
    kernel: Kernel = field(default="auto", metadata=KERNEL)
    prune_last: bool = field(default=False, metadata={"says": "no clean queries in the last layer"})

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """The axis carries both streams alone; blocks, rings and window fit."""
        found = list(carries_streams(self, context))
        yield from found
        if not found:
            found = list(sized(self, self.block_size, context))
            yield from found
            yield from _rings(self, context)
            yield from _idle_transport(self, context)
            yield from _window(self, context)
            yield from _pruned_rows(self, context)
            yield from () if found else evenly_moved(self, self.block_size, context)
            yield from () if found else _views(self, context)

    def apply(self, plan: Plan) -> Plan:
        """Who has which blocks, and what attention sends."""
        streams = self.streams(plan)
        views = views_of(plan).shared(self.share_clean)
        return planned(plan, self.axis, streams, _exchange(self, streams), views, prune_last=self.prune_last)

    def streams(self, plan: Plan) -> Streams:
        """Where the tokens are."""
        ranks, seq = plan.mesh.size(self.axis), plan.sizes.seq
        assert seq is not None
        beside = views_of(plan).shared(self.share_clean).beside
        return block_streams(seq, self.block_size, ranks, self.context or ranks, self.window, beside)


def _exchange(strategy: CSBP, streams: Streams) -> Exchange:
    """The bytes of each way to share the clean stream; `tests/gloo/test_block_attention.py` holds them."""
    ring, most = streams.context, streams.padded
    if ring == 1:
        return Exchange(calls=(), forward=(0, 1), backward=(0, 1))
    if strategy.window is not None:
        return _within_window(streams)
    hops = ring - 1
    if strategy.transport == "gather":
        return Exchange(
            calls=(
                ("all_gather", "forward", "clean keys and values", ring * most, 1),
                ("reduce_scatter", "backward", "gradients of clean keys and values", ring * most, 1),
            ),
            forward=(hops * most, 1),
            backward=(hops * most, 1),
            kept=streams.tokens,
        )
    return Exchange(
        calls=(
            ("send", "forward", "clean keys and values", most, hops),
            ("send", "backward", "clean keys and values", most, hops),
            ("send", "backward", "gradients of clean keys and values", most, hops),
        ),
        forward=(hops * most, 1),
        backward=(2 * hops * most, 1),
    )


def _within_window(streams: Streams) -> Exchange:
    """Messages between neighbours, whose gradients go back in the backward.

    Ranks at the ends have fewer: each pass lists the messages of the rank that sends most in it.
    """
    moves = {pair: length(runs) for pair, runs in streams.moves().items()}
    calls = (
        *_busiest(moves, 0, "forward", "clean keys and values in the window"),
        *_busiest(moves, 1, "backward", "gradients of clean keys and values in the window"),
    )
    total = sum(moves.values())
    kept = max(length(streams.needed(rank)) for rank in range(streams.ranks))
    return Exchange(calls=calls, forward=(total, streams.ranks), backward=(total, streams.ranks), kept=kept)


def _busiest(moves: Mapping[tuple[int, int], int], end: int, pass_: Pass, what: str) -> Iterator[Call]:
    """The messages of the rank that sends most tokens; it is at this end of the moves of keys and values."""
    sent: dict[int, list[int]] = {}
    for pair, tokens in moves.items():
        sent.setdefault(pair[end], []).append(tokens)
    most = max(sent.values(), key=lambda sizes: (sum(sizes), len(sizes)), default=[])
    for size in sorted(set(most)):
        yield "send", pass_, what, size, most.count(size)


# Constraints


def _rings(strategy: CSBP, context: Context) -> Iterator[Diagnostic]:
    ranks, ring = context.plan.mesh.size(strategy.axis), strategy.context
    if ring is None or (ring >= 1 and ranks % ring == 0):
        return
    fits = [size for size in range(1, ranks + 1) if ranks % size == 0]
    message = f"`context` = {ring} does not divide `{strategy.axis}` = {ranks}"
    notes = ("so many ranks share one clean sequence, and every rank is in one such ring",)
    yield offered(context.finding("context-ranks", message, key="context", notes=notes), "context", fits, context)


def _idle_transport(strategy: CSBP, context: Context) -> Iterator[Diagnostic]:
    """Where each rank has all of the clean stream, nothing is sent, and no way to send it decides anything."""
    if strategy.context == 1 and "transport" in context.table.fields:
        message = "`transport` decides nothing: with `context` = 1 each rank has all clean tokens, and none are sent"
        yield _without(context.finding("decides-nothing", message, key="transport"), "transport", context)


def _window(strategy: CSBP, context: Context) -> Iterator[Diagnostic]:
    window, seq = strategy.window, context.plan.sizes.seq
    if window is None:
        return
    if window < 1:
        message = f"`window` = {window}: a token sees at least itself"
        yield _without(context.finding("block-window", message, key="window"), "window", context)
    elif seq is not None and window >= seq:
        message = f"`window` = {window} leaves nothing out: a sequence has {seq} tokens"
        note = "a window costs messages of its own, whatever it leaves out"
        yield _without(context.finding("block-window", message, key="window", notes=(note,)), "window", context)
    elif "transport" in context.table.fields and strategy.context != 1:
        asks = "a ring" if strategy.transport == "ring" else "all clean keys at once"
        message = f"a window has an exchange of its own, between neighbours, and `transport` asks for {asks}"
        finding = context.finding("block-window", message, key="transport", notes=("leave one of the two out",))
        yield _without(finding, "transport", context)


def _without(finding: Diagnostic, key: str, context: Context) -> Diagnostic:
    """The finding with an offer to leave the line of a key out."""
    written = context.table.fields.get(key)
    return finding if written is None else replace(finding, help=(left_out(written.key, written.span),))


def _views(strategy: CSBP, context: Context) -> Iterator[Diagnostic]:
    if strategy.share_clean and views_of(context.plan).count == 1:
        message = f"`share_clean` shares one clean stream among several views, and `{context.plan.model}` has one"
        yield context.finding("block-views", message, key="share_clean")


def _pruned_rows(strategy: CSBP, context: Context) -> Iterator[Diagnostic]:
    """No tensor axis cuts the rows that some are left out of."""
    plan = context.plan
    for axis in plan.axes_of("tensor") if strategy.prune_last else ():
        if plan.mesh.size(axis) > 1 and cuts_rows(plan, axis):
            message = (
                f"`prune_last` leaves rows out of the last layer, and `{axis}` = {plan.mesh.size(axis)} cuts the rows"
            )
            note = "the parts of fewer rows lie on other ranks than those of all rows, which the layer adds them to"
            yield context.finding("block-prune", message, key="prune_last", notes=(note,))
