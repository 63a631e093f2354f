"""`schedule = "bsipipe"`: two opposing zig-zag pipelines over subsequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

from meshlang.pipeline.held import filled, late
from meshlang.pipeline.mapping import Mapping, best, moved, places
from meshlang.pipeline.zigzag import bsipipe, can_be_uneven, uneven_bsipipe
from meshlang.strategy import Context, Diagnostic, Program

from .executed import a_multiple, held_costs, in_two, mirrored, ranks_of
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
            "held" is "late", and with any number of subsequences up to half the ranks a rank holds no
            more than Seq1F1B's, and as much where that makes it faster; "late" holds as much as "together".
        directions: half of the sequences go each way, or "uneven": where an odd number of sequences, three or
            more, is the most whose subsequences are no more than the ranks, of so many one more goes down.
        mapping: which ranks share a node; the best for `ranks_per_node` of `[topology]` where the spec does not say.
        sync: when gradients of both replicas are summed: stage by stage as they are done, or all at the end.
    """

    usual_chunks: ClassVar[int] = 2

    weights: Literal["together", "late", "held"] = field(
        default="together", metadata={"says": "when gradients of weights are computed"}
    )
    directions: Literal["even", "uneven"] = field(
        default="even", metadata={"says": "whether as many sequences go up as down"}
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
        if self.directions == "even":
            yield from a_multiple(self, context, 2, "sends half of them each way: an even number")
        else:
            yield from _uneven(self, context)
        yield from sliced(self, context)
        yield from _foldable(self, context)
        if self.weights != "together":
            yield from keeps_weights(context)

    def program(self, context: Context) -> Program | None:
        """By slot, or held by what has arrived; each position on its rank."""
        ranks, node = ranks_of(context), per_node(context)
        mapping: Mapping = self.mapping or best(ranks, node)
        return moved(self._made(context), places(mapping, ranks, node))

    def _made(self, context: Context) -> Program:
        numbers, tokens = (*numbers_of(self, context), self.subsequences), self.tokens(context)
        costs, uneven = held_costs(context, tokens), self.directions == "uneven" and ranks_of(context) > 1
        if self.weights == "held":
            return (
                filled(uneven_bsipipe(*numbers), costs)
                if uneven
                else late(*numbers, replicas=2, hold=True, costs=costs)
            )
        if uneven:
            return in_two(uneven_bsipipe(*numbers), self.weights, tokens)
        return in_two(bsipipe(*numbers), self.weights, tokens)


def per_node(context: Context) -> int:
    """Ranks along the pipeline axis that share a node; 1 where the spec does not say how many ranks do."""
    mesh, node = context.plan.mesh, context.ranks_per_node
    if node is None:
        return 1
    inner = mesh.product(mesh.names[mesh.names.index(PIPELINE_AXIS) + 1 :])
    return max(1, min(ranks_of(context), node // inner))


def _uneven(schedule: BSIPipe, context: Context) -> Iterator[Diagnostic]:
    """Microbatches go both ways, and ranks have room for the subsequences of an odd number of them."""
    ranks, chunks, _ = numbers_of(schedule, context)
    yield from a_multiple(schedule, context, 1, "sends some of them each way: at least two", 2)
    if ranks > 1 and not can_be_uneven(ranks, chunks, schedule.subsequences):
        message = (
            f"`uneven` needs an even number of stages a rank, here {chunks}, and room on `{PIPELINE_AXIS}` for an odd "
            f"number of sequences, three or more: here {ranks // schedule.subsequences} of "
            f"{schedule.subsequences} subsequences on {ranks} ranks"
        )
        yield context.finding("schedule-numbers", message, key="directions")


def _foldable(schedule: BSIPipe, context: Context) -> Iterator[Diagnostic]:
    ranks, node = ranks_of(context), per_node(context)
    if schedule.mapping != "folded" or ranks == 1 or (node % 2 == 0 and ranks % node == 0):
        return
    message = (
        f"`folded` puts a rank and its mirror image on one node, and of `{PIPELINE_AXIS}` = {ranks} a node has {node}"
    )
    note = "[topology] ranks_per_node says how many ranks share a node; axes inside `pp` fill it first"
    yield context.finding("schedule-numbers", message, key="mapping", notes=(note,))
