"""`[strategy.ring_attention]`: keys and values pass around the ranks of the axis, one part at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, final

from meshlang.strategy import DTYPE_BYTES, Collective, Context, Diagnostic, Edge, Plan, Saved, Strategy

from .context import AXIS, BALANCE, Balance, Looks, balanced, carries_sequence, looking, name, sequence_dim

Pass = Literal["forward", "backward"]


@final
@dataclass(frozen=True, kw_only=True)
class RingAttention(Strategy):
    """Ring attention (arXiv 2310.01889): queries stay, and each rank sees all keys in as many steps as ranks.

    A rank sends its keys and values, packed as one message, to the next one P - 1 times in the
    forward, and again in the backward, together with P - 1 messages of their gradients, which are
    summed on the way in float32 or wider. It never holds more than two parts of keys and values
    besides its own. Partial results are merged by their log-sum-exp in float32 or wider.
    """

    ops: ClassVar[str | None] = "meshlang_strategies.ring_attention_ops"

    axis: str = field(metadata=AXIS)
    balance: Balance = field(default="head_tail", metadata=BALANCE)

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """The axis carries the sequence, heads and tails are equal, and modules take queries, keys and values."""
        found = list(carries_sequence(self, context))
        yield from found
        if not found:
            yield from balanced(self, self.balance, context)
            yield from _streams(self, context)

    def apply(self, plan: Plan) -> Plan:
        """The messages; every value stays where it is."""
        ring = looking(plan, self.axis)
        sent = (call for each in ring for call in _messages(plan, each, self.axis))
        others = (saved for saved in plan.saved if saved.module not in {each.module for each in ring})
        saved = (value for each in ring for value in _saved(each))
        return replace(plan, collectives=(*plan.collectives, *sent), saved=(*others, *saved))


def _streams(strategy: RingAttention, context: Context) -> Iterator[Diagnostic]:
    """Each module takes queries, and looks over keys and values: batch, seq, heads and a head's numbers."""
    for each in looking(context.plan, strategy.axis):
        shapes = {(len(edge.names), sequence_dim(edge)) for edge in each.edges}
        if (len(each.others), len(each.whole)) == (1, 2) and shapes == {(4, 1)} and each.output is not None:
            continue
        ports = ", ".join(f"{edge.port} ({' '.join(names[0] for names in edge.names)})" for edge in each.edges)
        message = f"`{name(context)}` runs on queries, keys and values, which `{each.module}` does not take"
        notes = ("each is (batch, seq, heads, numbers of a head)", f"it has {ports}")
        yield context.finding("strategy-axis", message, key="axis", notes=notes)
        return


def _saved(each: Looks) -> Iterator[Saved]:
    """Queries, keys, values, the output as it is merged and as it goes on, and the log of each query's sum."""
    yield from (Saved(module=each.module, port=edge.port) for edge in (*each.others, *each.whole))
    assert each.output is not None
    yield Saved(module=each.module, port="output", count=2)
    out = each.output
    yield Saved(module=each.module, names=out.names[:-1], shape=out.shape[:-1], cuts=out.src.dims[:-1], dtype="float32")


def _messages(plan: Plan, each: Looks, axis: str) -> Iterator[Collective]:
    """P - 1 messages of keys and values in each pass, and P - 1 of their gradients in the backward."""
    width = DTYPE_BYTES[plan.precision.compute]
    hops = (plan.mesh.size(axis) - 1) * plan.sizes.accumulation
    parts = [_elements(plan, edge) for edge in each.whole]
    total = None if None in parts else sum(part for part in parts if part is not None)
    sent: tuple[tuple[str, Pass, int], ...] = (
        ("keys and values", "forward", width),
        ("keys and values", "backward", width),
        ("gradients of keys and values", "backward", max(width, DTYPE_BYTES["float32"])),
    )
    for what, pass_, size in sent if hops else ():
        yield Collective(
            kind="send",
            axis=axis,
            where=f"{each.module} {what}",
            pass_=pass_,
            bytes=None if total is None else total * size,
            count=hops,
        )


def _elements(plan: Plan, edge: Edge) -> int | None:
    """Of one rank's part."""
    total = 1
    for size, axes in zip(edge.shape, edge.dst.dims, strict=True):
        if size is None:
            return None
        total *= size // plan.mesh.product(axes)
    return total
