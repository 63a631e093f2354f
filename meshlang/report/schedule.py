"""A pipeline's timeline as text, and schedules beside each other as a table."""

from __future__ import annotations

from collections.abc import Sequence

from ..diagnostics import counted
from ..pipeline.compare import HELD, LATE, UNEVEN, Numbers, Row, memory
from ..pipeline.costs import Costs
from ..pipeline.ir import Op, Program
from ..pipeline.notation import program_data
from ..pipeline.simulate import Timeline
from .tables import table

#: Columns of a timeline.
WIDTH = 100
#: Ranks that are shown.
MOST_RANKS = 64
#: Subsequences whose tokens are shown.
MOST_LENGTHS = 8


def timeline_text(name: str, program: Program, timeline: Timeline, costs: Costs) -> str:
    """What a schedule comes to, and what each rank does when."""
    shares = costs.shares or program.ranks
    lines = [
        f"{name} on {counted(program.ranks, 'rank')}: {_shape(program, costs.lengths)}",
        f"  makespan {_n(timeline.makespan)}, bubble {100 * timeline.bubble:.2f} %, "
        f"peak activations {_n(max(timeline.peaks))}, parameters {program.replicas}x",
        *([f"  sums of gradients that nothing hides: {_n(timeline.exposed)}"] if timeline.exposed else []),
        f"  {costs_text(costs)}",
        f"  time: of the forward of one sequence on 1 / {shares} of the model; peak: of that share's activations",
        "",
        *_picture(program, timeline),
        "",
        "  " + _legend(program),
    ]
    return "\n".join(lines) + "\n"


def _shape(program: Program, lengths: Sequence[int]) -> str:
    text = f"{counted(program.stages, 'stage')}, " + ("two replicas, " if program.replicas > 1 else "")
    text += counted(program.sequences, "microbatch")
    return text + (f" of {subsequences_text(program.subsequences, lengths)}" if program.subsequences > 1 else "")


def subsequences_text(count: int, lengths: Sequence[int]) -> str:
    """How many, and of how many tokens where they differ."""
    if len(set(lengths)) < 2 or len(lengths) != count:
        return f"{count} subsequences"
    shown = [*map(str, lengths[:MOST_LENGTHS]), *([f"... {count - MOST_LENGTHS} more"] if count > MOST_LENGTHS else [])]
    return f"{count} subsequences of {', '.join(shown)} tokens"


def costs_text(costs: Costs) -> str:
    """The costs that are not zero."""
    words = [f"backward {_n(costs.backward)}"]
    if costs.weights != Costs.weights:
        words += [f"{_n(costs.weights)} of it for weights"]
    if costs.attention:
        words += [f"attention {_n(costs.attention)} of a forward, its backward {_n(costs.attention_backward)}"]
        cut = (
            "as the spec cuts them"
            if costs.lengths
            else f"of equal {'tokens' if costs.split == 'equal' else 'forwards'}"
        )
        words += [f"subsequences {cut}"]
    for name in ("latency", "transfer", "latency_between", "transfer_between", "head", "sync", "sync_between"):
        value = getattr(costs, name)
        if value:
            words.append(f"{name.replace('_', ' ')} {_n(value)}")
    return "costs: forward 1, " + ", ".join(words)


def _n(value: float) -> str:
    return f"{value:.4g}" if value < 1000 else f"{value:.1f}"


def _picture(program: Program, timeline: Timeline) -> list[str]:
    step = timeline.makespan / WIDTH or 1.0
    rows = [
        [str(rank), _line(program.order[rank], timeline.starts[rank], timeline.ends[rank], step), _n(peak)]
        for rank, peak in enumerate(timeline.peaks[:MOST_RANKS])
    ]
    lines = table(["rank", f"timeline, {_n(step)} a column", "peak"], rows, right=frozenset({0, 2}))
    left = program.ranks - MOST_RANKS
    return [*lines, *([f"  ... {left} more"] if left > 0 else [])]


def _line(row: Sequence[Op], starts: Sequence[float], ends: Sequence[float], step: float) -> str:
    """A letter for what runs in the middle of each column."""
    found = ["."] * WIDTH
    for op, start, end in zip(row, starts, ends, strict=True):
        for column in range(max(0, int(start / step - 0.5)), min(WIDTH, int(end / step + 0.5) + 1)):
            if start <= (column + 0.5) * step < end:
                found[column] = op.kind.lower() if op.replica else op.kind
    return "".join(found)


def _legend(program: Program) -> str:
    kinds = {op.kind for row in program.order for op in row}
    words = {"F": "forward", "B": "backward", "I": "gradient of inputs", "W": "gradients of weights"}
    text = ", ".join(f"{kind} {word}" for kind, word in words.items() if kind in kinds)
    return text + ("; small letters: the second replica" if program.replicas > 1 else "") + "; . idle"


def schedule_data(program: Program, timeline: Timeline, lengths: Sequence[int] = ()) -> dict[str, object]:
    """The document that `--json` prints; `lengths` is in it where subsequences differ in their tokens."""
    return {
        **program_data(program),
        **({"lengths": list(lengths)} if lengths else {}),
        "peak_activations": list(timeline.peaks),
        "makespan": timeline.makespan,
        "bubble": timeline.bubble,
    }


#: What words behind a schedule's name mean.
_WORDS = (
    (LATE, "gradients of weights are put off, and run where a rank would wait"),
    (HELD, "late, with as much as seq1f1b holds at most"),
    (UNEVEN, "more sequences go down than come up"),
)


def comparison_text(rows: Sequence[Row], chosen: tuple[str, Numbers], *, state: float = 0.0) -> str:
    """Schedules beside each other; `>` marks the spec's own."""
    header = ["", "schedule", "ranks x stages", "microbatches", "makespan", "bubble %", "peak", "parameters"]
    header += ["memory"] if state else []
    lines = table(header, [_row(row, chosen, state) for row in rows], right=frozenset({4, 5, 6, 7, 8}))
    notes = [f" {word[1:]}: {text}" for word, text in _WORDS if any(word in row.candidate.name for row in rows)]
    return "\n".join([*lines, *notes]) + "\n"


def _row(row: Row, chosen: tuple[str, Numbers], state: float) -> list[str]:
    at, timeline = row.candidate.numbers, row.timeline
    numbers = f"{at.sequences}" + (f" x {at.subsequences}" if at.subsequences > 1 else "")
    numbers += " each" if row.candidate.copies > 1 else ""
    head = [">" if (row.candidate.name, at) == chosen else "", row.candidate.name, f"{at.ranks} x {at.chunks}", numbers]
    if timeline is None:
        return [*head, f"({row.candidate.why_not})", "", "", "", *([""] if state else [])]
    figures = [_n(timeline.makespan), f"{100 * timeline.bubble:.2f}", _n(row.peak), f"{row.candidate.parameters}x"]
    return [*head, *figures, *([_n(memory(row, state))] if state else [])]
