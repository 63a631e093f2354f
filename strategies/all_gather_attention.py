"""`[strategy.all_gather_attention]`: each rank gathers all keys and values and keeps its own queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, final

from meshlang.strategy import Context, Diagnostic, Plan, Strategy

from .context import AXIS, BALANCE, Balance, balanced, carries_sequence, looking, rewritten, uncut


@final
@dataclass(frozen=True, kw_only=True)
class AllGatherAttention(Strategy):
    """Context parallelism as torchtitan has it (Llama 3, arXiv 2407.21783, section 3.3.2).

    What a module looks over as a whole loses the axis as it comes in. The plan itself then says
    the rest: an all-gather of keys and one of values in the forward, a reduce-scatter of each of
    their gradients in the backward. A rank holds the keys and values of the whole sequence.
    """

    ops: ClassVar[str | None] = None

    axis: str = field(metadata=AXIS)
    balance: Balance = field(default="head_tail", metadata=BALANCE)

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """The axis carries the sequence, and heads and tails are equal."""
        found = list(carries_sequence(self, context))
        yield from found
        if not found:
            yield from balanced(self, self.balance, context)
            yield from _some_stay(self, context)

    def apply(self, plan: Plan) -> Plan:
        """Keys and values whole inside their modules."""
        return rewritten(plan, (uncut(edge, self.axis) for each in looking(plan, self.axis) for edge in each.whole))


def _some_stay(strategy: AllGatherAttention, context: Context) -> Iterator[Diagnostic]:
    """A module that gives a part of the sequence also takes a part, which its queries are."""
    for each in looking(context.plan, strategy.axis):
        if each.output is not None and not each.others:
            message = f"`{each.module}` looks over the whole sequence in every input, and none of them may stay cut"
            note = f"its output is cut over `{strategy.axis}`; a card can say `k.seq` and `v.seq` are whole, not `seq`"
            yield context.finding("strategy-axis", message, key="axis", notes=(note,))
            return
