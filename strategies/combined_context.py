"""`[strategy.combined_context]`: context parallelism on the sequence [corrupted ; clean], for comparison with csbp."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, final

from meshlang.strategy import Context, Diagnostic, Plan, Strategy

from .block_layout import Streams, combined_streams, length
from .block_plan import KERNEL, Call, Exchange, Kernel, carries_streams, evenly_moved, planned, sized, views_of


@final
@dataclass(frozen=True, kw_only=True)
class CombinedContext(Strategy):
    """The baseline that `csbp` is measured against: head-tail context parallelism over 2L positions.

    Keys and values of both streams are gathered, and both gradients reduced, since to context
    parallelism the two streams are one sequence. Kernels and overlap are those of `csbp`: a rank
    computes on its own keys while those of the others come.
    """

    ops: ClassVar[str | None] = "meshlang_strategies.csbp_ops"
    places: ClassVar[tuple[str, ...]] = ("seq",)

    axis: str = field(metadata={"says": "mesh axis that cuts the combined sequence"})
    block_size: int = field(metadata={"says": "tokens of a block"})
    kernel: Kernel = field(default="auto", metadata=KERNEL)

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """The axis carries both streams alone, and each rank has blocks."""
        found = list(carries_streams(self, context)) or list(sized(self, self.block_size, context))
        yield from found or evenly_moved(self, self.block_size, context)

    def apply(self, plan: Plan) -> Plan:
        """Who has which tokens, and what attention sends."""
        streams = self.streams(plan)
        ranks, parts = streams.ranks, [max(map(length, each)) for each in (streams.corrupted, streams.clean)]
        both = Counter(ranks * part for part in parts)
        gathers: tuple[Call, ...] = tuple(
            ("all_gather", "forward", "keys and values of both streams", *each) for each in both.items()
        )
        sums: tuple[Call, ...] = tuple(
            ("reduce_scatter", "backward", "gradients of keys and values of both streams", *each)
            for each in both.items()
        )
        received = (sum(parts) * (ranks - 1), 1)
        exchange = Exchange(
            calls=(*gathers, *sums) if ranks > 1 else (),
            forward=received,
            backward=received,
            kept=streams.tokens if ranks > 1 else 0,
        )
        return planned(plan, self.axis, streams, exchange, views_of(plan).shared(False))

    def streams(self, plan: Plan) -> Streams:
        """Where the tokens are."""
        assert plan.sizes.seq is not None
        return combined_streams(plan.sizes.seq, self.block_size, plan.mesh.size(self.axis))
