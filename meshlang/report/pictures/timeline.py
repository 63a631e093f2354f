"""The pipeline's timeline with what each rank holds beneath it; for the page also as plain numbers.

All operations of one kind on one rank are one path, so that ten thousand of them stay light. The
page finds the one under the pointer in the numbers, and writes names where they have room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...pipeline.ir import Op, Program
from ...pipeline.simulate import Timeline
from .canvas import MONO, Picture, box, legend, line, ticks, words
from .markup import Markup, joined, tag

#: Ranks, and operations of all of them, that are drawn.
MOST_RANKS, MOST_OPS = 64, 36_000
LEFT, WIDE, TOP, CURVES = 70.0, 1010.0, 44.0, 130.0
#: Where operations are narrower, no line between them is drawn: it would hide them.
MOST_DENSE = 4.0
_NAMES = {"F": "forward", "B": "backward", "I": "gradient of inputs", "W": "gradients of weights"}


def drawn_ranks(program: Program) -> int:
    """Ranks that are drawn, from the first."""
    most = max(len(row) for row in program.order) or 1
    return max(1, min(program.ranks, MOST_RANKS, MOST_OPS // most))


def row_height(ranks: int) -> float:
    """Pixels of a rank."""
    return 26.0 if ranks <= 8 else 18.0 if ranks <= 16 else 9.0


def held_over_time(program: Program, timeline: Timeline, rank: int) -> list[tuple[float, float]]:
    """(time, what a rank holds from then on): a forward's from its start, until its backward or the W half ends.

    In units of one sequence on a share of the model; the highest is the simulation's peak of the rank.
    """
    unit = program.ranks / program.stages
    now, found = 0.0, [(0.0, 0.0)]
    for op, start, end in zip(program.order[rank], timeline.starts[rank], timeline.ends[rank], strict=True):
        if op.kind == "I":
            continue
        now += timeline.tokens[op.subsequence] * unit * (1 if op.kind == "F" else -1)
        found.append((start if op.kind == "F" else end, now))
    return found


def timeline_picture(title: str, program: Program, timeline: Timeline, axis: str = "rank") -> Picture:
    """A row for each rank along the pipeline's axis; beneath, activations of each rank, the fullest in colour."""
    ranks = drawn_ranks(program)
    row, scale = row_height(ranks), WIDE / (timeline.makespan or 1.0)
    bottom = TOP + row * ranks
    dense = " dense" if usual_width(timeline) < MOST_DENSE else ""
    below = bottom + 46
    body = [
        legend(LEFT, 14, list(_kinds(program))),
        *_grid(program, timeline.makespan, scale, bottom, below),
        *(
            words(LEFT - 8, TOP + row * r + row / 2 + 4, f"{axis} {r}", "end")
            for r in range(0, ranks, 1 if row > 10 else 4)
        ),
        tag(
            "g",
            tag("g", *_rows(program, timeline, ranks, scale, row), class_=f"x{dense}"),
            clip_path="url(#plot)",
        ),
        tag("g", *_labels(program, timeline, ranks, scale, row), class_="labels"),
        *_curves(program, timeline, ranks, scale, below),
    ]
    clip = tag("clipPath", tag("rect", x=LEFT, y=TOP - 2, width=WIDE, height=below + CURVES - TOP + 4), id="plot")
    left = program.ranks - ranks
    if left > 0:
        body.append(words(LEFT, below + CURVES + 32, f"the first {ranks} of {program.ranks} ranks", "quiet"))
    return Picture(
        name="timeline",
        title=title,
        width=LEFT + WIDE + 20,
        height=below + CURVES + 40,
        body=joined([tag("defs", clip), *body]),
    )


def usual_width(timeline: Timeline) -> float:
    """Pixels of the operation in the middle, by their lengths, with all in sight."""
    found = sorted(end - start for start, end in zip(timeline.starts[0], timeline.ends[0], strict=True))
    return found[len(found) // 2] * WIDE / (timeline.makespan or 1.0) if found else WIDE


def _kinds(program: Program) -> Iterator[tuple[str, str]]:
    have = {(op.kind, op.replica) for row in program.order for op in row}
    for kind, name in _NAMES.items():
        for replica in (0, 1):
            if (kind, replica) in have:
                yield f"op{kind}{replica}", name + (", second replica" if replica else "")


def _rows(program: Program, timeline: Timeline, ranks: int, scale: float, row: float) -> Iterator[Markup]:
    for rank in range(ranks):
        y = TOP + row * rank + 1
        yield box(LEFT, y, WIDE, row - 2, "soft")
        paths: dict[str, list[str]] = {}
        for op, start, end in zip(program.order[rank], timeline.starts[rank], timeline.ends[rank], strict=True):
            wide = (end - start) * scale
            path = f"M{_n(LEFT + start * scale)} {_n(y)}h{_n(wide)}v{_n(row - 2)}h{_n(-wide)}z"
            paths.setdefault(f"op{op.kind}{op.replica}", []).append(path)
        for class_, found in paths.items():
            yield tag("path", d="".join(found), class_=f"{class_} thin", vector_effect="non-scaling-stroke")


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def short(op: Op, program: Program) -> str:
    """`3` for sequence 3, `3.1` for its subsequence 1."""
    return f"{op.sequence}.{op.subsequence}" if program.subsequences > 1 else str(op.sequence)


def _labels(program: Program, timeline: Timeline, ranks: int, scale: float, row: float) -> Iterator[Markup]:
    """Names where they have room."""
    if row < 14:
        return
    for rank in range(ranks):
        y = TOP + row * rank + row / 2 + 4
        for op, start, end in zip(program.order[rank], timeline.starts[rank], timeline.ends[rank], strict=True):
            text = short(op, program)
            if (end - start) * scale > MONO * 0.86 * len(text) + 3:
                yield words(LEFT + (start + end) / 2 * scale, y, text, "mono small mid on-op")


def _grid(program: Program, makespan: float, scale: float, bottom: float, below: float) -> Iterator[Markup]:
    """Time, and the names of both parts."""
    marks = []
    for at in ticks(makespan, 12):
        x = LEFT + at * scale
        marks += [line(x, bottom, x, bottom + 4), words(x, bottom + 16, f"{at:g}", "small mid quiet")]
    yield tag("g", *marks, class_="ticks")
    yield words(LEFT, 34, "operations, by sequence" + " and subsequence" * (program.subsequences > 1), "quiet small")
    yield words(
        LEFT,
        below - 8,
        "activations held, in sequences on one share of the model; thick: the fullest",
        "quiet small",
    )


def _curves(program: Program, timeline: Timeline, ranks: int, scale: float, below: float) -> Iterator[Markup]:
    most = max(timeline.peaks) or 1.0
    for at in ticks(most, 4):
        y = below + CURVES - (CURVES - 8) * at / most
        yield line(LEFT, y, LEFT + WIDE, y)
        yield words(LEFT - 8, y + 4, f"{at:g}", "end quiet small")
    fullest = max(range(ranks), key=lambda rank: timeline.peaks[rank])
    curves = [
        tag(
            "path",
            d=_steps(held_over_time(program, timeline, rank), scale, below, most),
            class_="curve top" if rank == fullest else "curve",
            data_rank=rank,
            vector_effect="non-scaling-stroke",
        )
        for rank in sorted(range(ranks), key=lambda rank: rank == fullest)
    ]
    yield tag("g", tag("g", *curves, class_="x"), clip_path="url(#plot)")


def _steps(points: Sequence[tuple[float, float]], scale: float, below: float, most: float) -> str:
    parts, last = [], None
    for at, value in points:
        y = _n(below + CURVES - (CURVES - 8) * value / most)
        parts.append(f"M{_n(LEFT)} {y}" if last is None else f"H{_n(LEFT + at * scale)}V{y}")
        last = y
    return "".join([*parts, f"H{_n(LEFT + WIDE)}"])


def timeline_data(program: Program, timeline: Timeline) -> dict[str, Any]:
    """What the page needs to name an operation.

    `rows` has for each rank a list of [kind, replica, sequence, subsequence, stage, start, end].
    """
    ranks = drawn_ranks(program)
    rows = [
        [
            ["FBIW".index(op.kind), op.replica, op.sequence, op.subsequence, op.stage, round(start, 4), round(end, 4)]
            for op, start, end in zip(program.order[rank], timeline.starts[rank], timeline.ends[rank], strict=True)
        ]
        for rank in range(ranks)
    ]
    held = [[[round(t, 4), round(v, 4)] for t, v in held_over_time(program, timeline, rank)] for rank in range(ranks)]
    place = {
        "left": LEFT,
        "wide": WIDE,
        "top": TOP,
        "row": row_height(ranks),
        "bottom": TOP + row_height(ranks) * ranks,
    }
    place |= {"usual": usual_width(timeline), "dense": MOST_DENSE}
    return {"makespan": timeline.makespan, "rows": rows, "held": held, "parts": program.subsequences > 1, **place}
