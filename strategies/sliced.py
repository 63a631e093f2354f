"""What schedules over subsequences share: how long each is, and the laws of cutting sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from math import prod
from typing import ClassVar, Literal

from meshlang.diagnostics import Edit, Help
from meshlang.pipeline.costs import cut
from meshlang.plan.slices import equal_flops
from meshlang.strategy import Context, Diagnostic

from .executed import EXECUTOR
from .numbered import NumberedSchedule, numbers


@dataclass(frozen=True, kw_only=True)
class SlicedSchedule(NumberedSchedule):
    """A schedule whose unit is a subsequence.

    Attributes:
        lengths: tokens of each subsequence; or equal tokens, or as many as make forwards equally long.
    """

    ops: ClassVar[str | None] = EXECUTOR
    slices_sequences: ClassVar[bool] = True

    lengths: Literal["equal", "equal-flops"] | tuple[int, ...] = field(
        default="equal", metadata={"says": 'tokens of each subsequence, or "equal", or "equal-flops"'}
    )

    def tokens(self, context: Context) -> tuple[int, ...]:
        """As `lengths` says; a multiple of the ranks that each have a part of every subsequence."""
        seq, count = context.plan.sizes.seq, self.subsequences
        if isinstance(self.lengths, tuple):
            return self.lengths
        if seq is None or count == 1:
            return ()
        if self.lengths == "equal-flops":
            return equal_flops(context.plan, count, _over(context))
        return (seq // count,) * count


def sliced(schedule: SlicedSchedule, context: Context) -> Iterator[Diagnostic]:
    """Subsequences add up, each rank that has a part of them has one, and no strategy looks across ranks for keys."""
    if schedule.subsequences > 1:
        whole = list(_whole_only(schedule, context))
        yield from whole
        if whole:
            return
    if isinstance(schedule.lengths, tuple):
        yield from _written(schedule.lengths, schedule, context)
    elif context.plan.sizes.seq is not None:
        yield from _shared_out(context.plan.sizes.seq, schedule, context)
    elif schedule.lengths == "equal-flops" and schedule.subsequences > 1:
        yield _unknown(context)


def _whole_only(schedule: SlicedSchedule, context: Context) -> Iterator[Diagnostic]:
    """What cannot be cut."""
    plan, parts = context.plan, schedule.subsequences
    rows = {names for edge in plan.edges for names in edge.names if names[0] == "seq" and len(names) > 1}
    if rows:
        text = " and ".join(f"({' '.join(names)})" for names in sorted(rows))
        message = f"`{plan.model}` has rows of {text}, and slices are of a sequence with one row a token"
        yield numbers(context, "subsequences", message, allowed=[1])
        return
    cut = [axis for axis in plan.axes_of("context") if plan.mesh.size(axis) > 1]
    if cut:
        message = f"`{cut[0]}` cuts each sequence too, and attention over it needs whole sequences, not {parts} slices"
        yield numbers(context, "subsequences", message, allowed=[1])


def _shared_out(seq: int, schedule: SlicedSchedule, context: Context) -> Iterator[Diagnostic]:
    """So many subsequences can be made of so many tokens: of equal length, or none of them empty."""
    parts, inner = schedule.subsequences, _over(context)
    equal = schedule.lengths == "equal"
    if parts == 1 or (seq % (parts * inner) == 0 if equal else seq % inner == 0 and seq // inner >= parts):
        return
    over = f", each over {inner} ranks" if inner > 1 else ""
    message = f"`seq` = {seq} does not divide into {parts} {'equal ' * equal}subsequences{over}"
    fits = [n for n in range(1, min(seq, 1024) + 1) if (seq % (n * inner) == 0 if equal else seq // inner >= n)]
    near = [*[n for n in fits if n < parts][-2:], *[n for n in fits if n > parts][:2]]
    yield numbers(context, "subsequences", message, allowed=near)


def _written(lengths: tuple[int, ...], schedule: SlicedSchedule, context: Context) -> Iterator[Diagnostic]:
    """Lengths as the spec says: one for each subsequence, all of the sequence, each even over its ranks."""
    seq, inner, count = context.plan.sizes.seq, _over(context), schedule.subsequences
    if len(lengths) != count:
        yield _as_many(lengths, count, context)
    elif seq is None:
        yield _unknown(context)
    elif low := [length for length in lengths if length < 1]:
        yield context.finding("bad-value", f"a subsequence of {low[0]} tokens is none", key="lengths")
    elif sum(lengths) != seq:
        message = f"`lengths` add up to {sum(lengths)} tokens, and `seq` = {seq}"
        yield _instead(context, message, _nearest(seq, lengths, inner))
    elif odd := [length for length in lengths if length % inner]:
        message = f"a subsequence of {odd[0]} tokens does not divide over {inner} ranks, each of which has a part of it"
        yield _instead(context, message, _nearest(seq, lengths, inner))


def _as_many(lengths: tuple[int, ...], count: int, context: Context) -> Diagnostic:
    """`lengths` and `subsequences` say different numbers, or one says none."""
    message = f"`lengths` has {len(lengths)} subsequences, and `subsequences` = {count}"
    written = context.table.fields.get("lengths")
    if "subsequences" in context.table.fields or written is None or not lengths:
        return numbers(context, "subsequences", message, allowed=[len(lengths)] if lengths else ())
    line = f"subsequences = {len(lengths)}"
    edit = Edit(span=written.span, text=f"{written.span.text}\n{line}")
    return replace(numbers(context, "lengths", message), help=(Help(text=f"add `{line}`", edits=(edit,)),))


def _nearest(seq: int, lengths: Sequence[int], multiple: int) -> str:
    """Lengths in the proportions of those written that fit, as a spec writes them; "" where none do."""
    if seq % multiple or seq // multiple < len(lengths):
        return ""
    whole = sum(lengths)
    ends = cut(seq, (end / whole for end in accumulate(lengths, initial=0)), multiple)
    return str([b - a for a, b in pairwise(ends)])


def _instead(context: Context, message: str, offer: str) -> Diagnostic:
    """A finding at `lengths`, which could be what is offered."""
    finding = numbers(context, "lengths", message)
    written = context.table.fields.get("lengths")
    if written is None or not offer:
        return finding
    edit = Edit(span=written.span, text=offer)
    return replace(finding, help=(Help(text=f"`lengths` may be {offer} here", edits=(edit,)),))


def _unknown(context: Context) -> Diagnostic:
    message = "`lengths` is in tokens of a sequence, and [sizes] has no `seq`"
    return context.finding("schedule-numbers", message, key="lengths")


def _over(context: Context) -> int:
    """Ranks that each have a part of the tokens of some value between modules: tensor axes that cut the sequence."""
    plan = context.plan
    cuts = {
        axis
        for edge in plan.edges
        for names, axes in zip(edge.names, edge.dst.dims, strict=True)
        if names[0] == "seq"
        for axis in axes
    }
    return prod(plan.mesh.size(axis) for axis in plan.axes_of("tensor") if axis in cuts)
