"""What pipeline schedules share: their keys, and the laws that each of them holds to.

The laws are those of the schedules in torch 2.14, and of torchtitan, which gives each microbatch
the same number of sequences; of schedules that torch lacks, what their order needs and no more.
They are told before anything starts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from meshlang.diagnostics import Diagnostic, Edit, Help, counted
from meshlang.strategy import Context, Plan, Schedule

#: The axis that stages lie along; a spec with `[pipeline]` and without it never gets here.
PIPELINE_AXIS = "pp"

#: More microbatches, or stages a rank, than anyone runs: an order of that many actions is not written out.
MOST = 8_192

#: A `split` that leaves it to the compiler, as leaving it out does.
BALANCE = "balance"


@dataclass(frozen=True, kw_only=True)
class NumberedSchedule(Schedule):
    """A schedule of so many microbatches, stages and subsequences.

    Attributes:
        microbatches: slices of the batch.
        chunks: stages a rank, of each replica; `usual_chunks` where the spec does not say.
        subsequences: slices of each sequence; 1 where the schedule runs whole sequences.
        split: layers of each stage, one part a stage, parts separated by "|".
    """

    usual_chunks: ClassVar[int] = 1
    #: Whether sequences may be sliced.
    slices_sequences: ClassVar[bool] = False

    microbatches: int = field(metadata={"says": "slices of the batch"})
    chunks: int | None = field(default=None, metadata={"says": "stages a rank, of each replica"})
    subsequences: int = field(default=1, metadata={"says": "slices of each sequence"})
    split: str | None = field(default=None, metadata={"says": 'layers of each stage, parts separated by "|"'})

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """What would be refused at run time, and what would go wrong silently."""
        found = [*_positive(self, context), *_whole_sequences(self, context), *_parts(self, context)]
        yield from found
        if not found:
            yield from self.laws(context)
            yield from _equal_microbatches(self, context)

    @abstractmethod
    def laws(self, context: Context) -> Iterable[Diagnostic]:
        """What this schedule asks for beyond what all do; the numbers are positive."""

    def stages_per_rank(self, context: Context) -> int:
        """As `chunks` says, or else `split`."""
        plan = context.plan
        if self.chunks is not None:
            return self.chunks
        if self.split is not None and self.split != BALANCE:
            return _count(self.split) // plan.mesh.size(PIPELINE_AXIS)
        return self.usual_chunks


def numbers_of(schedule: NumberedSchedule, context: Context) -> tuple[int, int, int]:
    """(ranks along the axis, stages a rank, microbatches)."""
    return context.plan.mesh.size(PIPELINE_AXIS), schedule.stages_per_rank(context), schedule.microbatches


def _positive(schedule: NumberedSchedule, context: Context) -> Iterator[Diagnostic]:
    for key in ("microbatches", "chunks", "subsequences"):
        number = getattr(schedule, key)
        if number is not None and number < 1:
            yield context.finding("bad-value", f"`{key}` = {number} is less than 1", key=key)
        elif number is not None and number > MOST:
            yield context.finding("bad-value", f"`{key}` = {number} is more than {MOST}", key=key)


def _whole_sequences(schedule: NumberedSchedule, context: Context) -> Iterator[Diagnostic]:
    if schedule.subsequences > 1 and not schedule.slices_sequences:
        message = f"`{_name(context)}` runs whole sequences, not {schedule.subsequences} parts of each"
        yield numbers(context, "subsequences", message)


def _parts(schedule: NumberedSchedule, context: Context) -> Iterator[Diagnostic]:
    """`split` has a part for each stage, the same number on each rank."""
    if schedule.split is None or schedule.split == BALANCE:
        return
    parts, ranks = _count(schedule.split), context.plan.mesh.size(PIPELINE_AXIS)
    if parts % ranks:
        message = f"`split` makes {parts} stages, which do not divide over `{PIPELINE_AXIS}` = {ranks}"
        yield numbers(context, "split", message)
    elif schedule.chunks is not None and parts != schedule.chunks * ranks:
        wanted = f"`chunks` = {schedule.chunks} on `{PIPELINE_AXIS}` = {ranks} make {schedule.chunks * ranks}"
        yield numbers(context, "split", f"`split` makes {parts} stages, and {wanted}")


def _count(split: str) -> int:
    return split.count("|") + 1


def _equal_microbatches(schedule: NumberedSchedule, context: Context) -> Iterator[Diagnostic]:
    """Each microbatch has the same number of sequences."""
    plan, count = context.plan, schedule.microbatches
    ranks = plan.mesh.product(plan.axes_of("data"))
    slices = ranks * plan.sizes.accumulation
    if plan.sizes.batch is None or plan.sizes.batch % slices or (plan.sizes.batch // slices) % count == 0:
        return
    batch = plan.sizes.batch // slices
    allowed = [number for number in range(1, min(batch, MOST) + 1) if batch % number == 0]
    message = f"{counted(batch, 'sequence a rank', does=True)} not divide into {counted(count, 'microbatch')}"
    over, passes = counted(ranks, "rank"), counted(plan.sizes.accumulation, "pass")
    note = f"{counted(plan.sizes.batch, 'sequence')} a step, over {over}, in {passes}"
    yield numbers(context, "microbatches", message, allowed=_nearest(count, allowed), notes=(note,))


def exactly(schedule: NumberedSchedule, context: Context, wanted: int) -> Iterator[Diagnostic]:
    """The schedule places `wanted` stages on each rank."""
    found = schedule.stages_per_rank(context)
    if found != wanted:
        key = "chunks" if schedule.chunks is not None else "split"
        message = f"`{_name(context)}` places {wanted} of the stages on each rank, and here are {found}"
        yield numbers(context, key, message, allowed=[wanted] if key == "chunks" else ())


def at_least(schedule: NumberedSchedule, context: Context) -> Iterator[Diagnostic]:
    """The schedule needs as many microbatches as there are stages."""
    ranks, each = context.plan.mesh.size(PIPELINE_AXIS), schedule.stages_per_rank(context)
    stages = ranks * each
    if schedule.microbatches < stages:
        made = f"`{PIPELINE_AXIS}` = {ranks}" + (f", {each} on each rank" if each > 1 else "")
        message = f"`{_name(context)}` needs as many microbatches as stages: {schedule.microbatches} for {stages}"
        yield numbers(context, "microbatches", message, allowed=[stages], notes=(f"stages: {made}",))


def rounds(schedule: NumberedSchedule, context: Context) -> Iterator[Diagnostic]:
    """Microbatches run in as many rounds as `pp` goes into them, all of the same length."""
    ranks, count = context.plan.mesh.size(PIPELINE_AXIS), schedule.microbatches
    if not _in_rounds(count, ranks):
        allowed = _nearest(count, [n for n in _around(count, ranks) if _in_rounds(n, ranks)])
        message = f"{counted(count, 'microbatch', does=True)} not divide into {count // ranks} rounds"
        note = f"`{_name(context)}` runs a round for each `{PIPELINE_AXIS}` = {ranks} microbatches that there are"
        yield numbers(context, "microbatches", message, allowed=allowed, notes=(note,))


def _around(count: int, ranks: int) -> range:
    return range(max(1, count - MOST), count + min(ranks, MOST) + 1)


def _in_rounds(count: int, ranks: int) -> bool:
    return count % max(1, count // ranks) == 0


def keeps_weights(context: Context) -> Iterator[Diagnostic]:
    """Weights that are cut at rest stay gathered until their gradients are computed.

    A zero-bubble schedule computes them after the backward of the inputs. torch 2.14's FSDP has
    freed the weights by then when the spec says so, and their gradients are lost without an error.
    """
    plan = context.plan
    freed = [unit for unit in plan.units if unit.after_forward == "free" and _cut_at_rest(unit.tensors, plan)]
    if freed:
        message = f'`{_name(context)}` loses gradients of weights that [store] after_forward = "free" frees'
        note = 'it computes them after the backward of the inputs; after_forward = "keep" holds the weights until then'
        yield context.finding("schedule-store", message, key="schedule", notes=(note,))


def _cut_at_rest(fqns: Sequence[str], plan: Plan) -> bool:
    return any(plan.by_fqn[fqn].stored for fqn in fqns)


def numbers(
    context: Context, key: str, message: str, *, allowed: Sequence[int] = (), notes: Sequence[str] = ()
) -> Diagnostic:
    """A finding at a number of `[pipeline]`, which could be one of `allowed`."""
    finding = context.finding("schedule-numbers", message, key=key, notes=notes)
    written = context.table.fields.get(key)
    if written is None or not allowed:
        return finding
    values = tuple(str(number) for number in allowed)
    edits = tuple(Edit(span=written.span, text=value) for value in values)
    return replace(finding, help=(Help(text=f"`{key}` may be {{}} here", edits=edits, values=values),))


def _nearest(count: int, allowed: Sequence[int]) -> list[int]:
    """The last allowed number before `count`, and the first after it."""
    below, above = [n for n in allowed if n < count], [n for n in allowed if n > count]
    return [*below[-1:], *above[:1]]


def _name(context: Context) -> str:
    return context.table.name.value
