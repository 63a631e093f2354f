"""A pipeline's timeline as a picture (SVG), and as a trace that Perfetto and Chrome open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..pipeline.ir import Op, Program
from ..pipeline.simulate import Timeline

#: Fill of (kind, replica); the second replica is the darker.
FILLS = {
    ("F", 0): "#9ecae1",
    ("F", 1): "#4292c6",
    ("B", 0): "#a1d99b",
    ("B", 1): "#41ab5d",
    ("I", 0): "#c7e9c0",
    ("I", 1): "#74c476",
    ("W", 0): "#fdd0a2",
    ("W", 1): "#fd8d3c",
}

_WIDTH, _ROW, _LEFT, _TOP = 1200, 22, 60, 30
#: Pixels from which an operation carries its name.
_NAMED = 34


def svg(title: str, program: Program, timeline: Timeline) -> str:
    """One row a rank, one box an operation, time from left to right."""
    height = _TOP + _ROW * program.ranks + 40
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 20}" height="{height}" '
        f'font-family="monospace" font-size="10">',
        f'<text x="{_LEFT}" y="18" font-size="13">{_safe(title)}</text>',
    ]
    scale = _WIDTH / timeline.makespan if timeline.makespan else 1.0
    for rank, row in enumerate(program.order):
        y = _TOP + _ROW * rank
        lines.append(f'<text x="8" y="{y + 14}">rank {rank}</text>')
        for op, start, end in zip(row, timeline.starts[rank], timeline.ends[rank], strict=True):
            lines += _box(op, _LEFT + start * scale, (end - start) * scale, y)
    lines += _key(program, _TOP + _ROW * program.ranks + 12)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _box(op: Op, x: float, width: float, y: float) -> Iterator[str]:
    fill = FILLS[op.kind, op.replica]
    yield (
        f'<rect x="{x:.2f}" y="{y + 1}" width="{width:.2f}" height="{_ROW - 2}" fill="{fill}" '
        f'stroke="#444" stroke-width="0.3"><title>{op}</title></rect>'
    )
    if width >= _NAMED:
        yield f'<text x="{x + 2:.2f}" y="{y + 14}" font-size="8">{op}</text>'


def _key(program: Program, y: float) -> Iterator[str]:
    have = sorted({(op.kind, op.replica) for row in program.order for op in row})
    for index, (kind, replica) in enumerate(have):
        x = _LEFT + 110 * index
        yield f'<rect x="{x}" y="{y}" width="12" height="12" fill="{FILLS[kind, replica]}"/>'
        yield f'<text x="{x + 16}" y="{y + 10}">{kind}{", replica 1" if replica else ""}</text>'


def _safe(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def trace(program: Program, timeline: Timeline) -> dict[str, Any]:
    """Chrome's trace format: a thread a rank, an event an operation; a unit of time is a millisecond."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 0, "tid": rank, "name": "thread_name", "args": {"name": f"rank {rank}"}}
        for rank in range(program.ranks)
    ]
    for rank, row in enumerate(program.order):
        for op, start, end in zip(row, timeline.starts[rank], timeline.ends[rank], strict=True):
            args = {"replica": op.replica, "sequence": op.sequence, "subsequence": op.subsequence, "stage": op.stage}
            times = {"ts": round(1000 * start, 3), "dur": round(1000 * (end - start), 3)}
            events.append({"ph": "X", "pid": 0, "tid": rank, "name": str(op), "cat": op.kind, **times, "args": args})
    return {"traceEvents": events, "displayTimeUnit": "ms"}
