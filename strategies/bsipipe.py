"""`schedule = "bsipipe"`: two opposing zig-zag pipelines over subsequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

from meshlang.pipeline.mapping import Mapping, best, moved, places
from meshlang.pipeline.zigzag import bsipipe
from meshlang.strategy import Context, Diagnostic, Program

from .executed import a_multiple, in_two, mirrored, ranks_of
from .numbered import PIPELINE_AXIS, keeps_weights, numbers_of
from .sliced import SlicedSchedule, sliced


@final
@dataclass(frozen=True, kw_only=True)
class BSIPipe(SlicedSchedule):
    """Two replicas, `chunks` stages of each a rank, on any even number of ranks (arXiv 2610.14935, as we read it).

    The second replica costs as many parameters as data parallel 2 of a `seqv` on half the ranks,
    which has the same timeline: `meshlang schedule --compare` shows both.

    Attributes:
        weights: their gradients are computed with those of inputs, or later, where a rank would wait.
        mapping: which ranks share a node; the best for `ranks_per_node` of `[topology]` where the spec does not say.
        sync: when gradients of both replicas are summed: stage by stage as they are done, or all at the end.
    """

    usual_chunks: ClassVar[int] = 2

    weights: Literal["together", "late"] = field(
        default="together", metadata={"says": "when gradients of weights are computed"}
    )
    mapping: Literal["folded", "contiguous", "bitpipe"] | None = field(
        default=None, metadata={"says": "how the schedule's positions lie on nodes"}
    )
    sync: Literal["eager", "lazy"] = field(
        default="eager", metadata={"says": "when gradients of both replicas are summed"}
    )

    def laws(self, context: Context) -> Iterator[Diagnostic]:
        """An even number of ranks, of microbatches; subsequences that add up; nodes that can be folded."""
        yield from mirrored(context)
        yield from a_multiple(self, context, 2, "sends half of them each way: an even number")
        yield from sliced(self, context)
        yield from _foldable(self, context)
        if self.weights == "late":
            yield from keeps_weights(context)

    def program(self, context: Context) -> Program | None:
        """By slot, each position on its rank."""
        ranks, node = ranks_of(context), per_node(context)
        mapping: Mapping = self.mapping or best(ranks, node)
        made = bsipipe(*numbers_of(self, context), self.subsequences)
        program = in_two(made, self.weights, self.tokens(context))
        return moved(program, places(mapping, ranks, node))


def per_node(context: Context) -> int:
    """Ranks along the pipeline axis that share a node; 1 where the spec does not say how many ranks do."""
    mesh, node = context.plan.mesh, context.ranks_per_node
    if node is None:
        return 1
    inner = mesh.product(mesh.names[mesh.names.index(PIPELINE_AXIS) + 1 :])
    return max(1, min(ranks_of(context), node // inner))


def _foldable(schedule: BSIPipe, context: Context) -> Iterator[Diagnostic]:
    ranks, node = ranks_of(context), per_node(context)
    if schedule.mapping != "folded" or ranks == 1 or (node % 2 == 0 and ranks % node == 0):
        return
    message = (
        f"`folded` puts a rank and its mirror image on one node, and of `{PIPELINE_AXIS}` = {ranks} a node has {node}"
    )
    note = "[topology] ranks_per_node says how many ranks share a node; axes inside `pp` fill it first"
    yield context.finding("schedule-numbers", message, key="mapping", notes=(note,))
