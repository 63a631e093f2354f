"""`schedule = "csv"`: any order of actions, from a file beside the spec."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, final

from meshlang.diagnostics import Diagnostic, Label
from meshlang.pipeline.actions import Action, read_cell
from meshlang.pipeline.ir import Problem
from meshlang.pipeline.laws import order_problems, stages_of
from meshlang.pipeline.orders import Order
from meshlang.strategy import Context, Source, Span

from .numbered import PIPELINE_AXIS, NumberedSchedule, keeps_weights

#: Cells of a file.
MOST_CELLS = 2**18

Cell = tuple[Span, tuple[Action, ...]]


@final
@dataclass(frozen=True, kw_only=True)
class OrderFile(NumberedSchedule):
    """A row for each rank along `pp`, its actions in order: 0F0, 0B0, or a backward in two, 0I0 and 0W0.

    The notation is that of torch's pipeline schedules, which writes such files too. Sends are not
    in it: they follow.

    Attributes:
        file: path of the file, from the spec's folder.
    """

    ops: ClassVar[str | None] = "csv"

    file: str = field(metadata={"says": "path of the order of actions, from the spec's folder"})

    def laws(self, context: Context) -> Iterator[Diagnostic]:
        """The file is there, and is an order that comes to its end."""
        elsewhere = context.outside("file")
        if elsewhere is not None:
            yield elsewhere
            return
        source = _read(self, context)
        if source is None:
            yield context.finding("order-file", f"the file `{self.file}` cannot be read", key="file")
            return
        if source.too_large or source.text.count(",") > MOST_CELLS:
            yield context.finding(
                "too-large", f"`{self.file}` has more cells than an order has: {MOST_CELLS}", key="file"
            )
            return
        rows, found = _rows(source)
        yield from found
        if found:
            return
        cells = [[actions for _, actions in row] for row in rows]
        ranks = context.plan.mesh.size(PIPELINE_AXIS)
        broken = order_problems(cells, ranks=ranks, microbatches=self.microbatches)
        yield from (_finding(problem, rows, context) for problem in broken)
        if any(action.kind == "W" for row in cells for cell in row for action in cell):
            yield from keeps_weights(context)

    def stages_per_rank(self, context: Context) -> int:
        """As the file names them."""
        source = _read(self, context)
        if source is None:
            return super().stages_per_rank(context)
        rows, _ = _rows(source)
        stages = len(stages_of([[actions for _, actions in row] for row in rows]))
        return max(1, stages // context.plan.mesh.size(PIPELINE_AXIS))

    def order(self, context: Context) -> Order:
        """As the file says."""
        source = _read(self, context)
        rows, _ = _rows(source) if source is not None else ([], [])
        return tuple(tuple(span.text.strip() for span, actions in row if actions) for row in rows)


def _read(schedule: OrderFile, context: Context) -> Source | None:
    written = context.table.fields.get("file")
    folder = Path(written.span.source.name).parent if written is not None else Path()
    path = folder / schedule.file
    try:
        return Source.read(path) if path.is_file() else None
    except (OSError, ValueError):
        return None


def _rows(source: Source) -> tuple[list[list[Cell]], list[Diagnostic]]:
    """The cells of each row, and what cannot be read."""
    rows: list[list[Cell]] = []
    found: list[Diagnostic] = []
    start = 0
    for line in source.text.split("\n"):
        if line.strip():
            rows.append(list(_cells(source, start, line.rstrip("\r"), found)))
        start += len(line) + 1
    return rows, found


def _cells(source: Source, start: int, line: str, found: list[Diagnostic]) -> Iterator[Cell]:
    for cell in line.split(","):
        span = source.span(start, start + len(cell))
        start += len(cell) + 1
        try:
            yield span, read_cell(cell)
        except ValueError as error:
            found.append(Diagnostic(code="order-file", message=str(error), label=Label(span=span)))


def _finding(problem: Problem, rows: list[list[Cell]], context: Context) -> Diagnostic:
    """A problem at its cell, its row, or the key that names the file."""
    if problem.row is None:
        return context.finding("order-file", problem.message, key="file")
    row = rows[problem.row]
    span = row[0][0].source.span(row[0][0].start, row[-1][0].end)
    if problem.cell is not None:
        span = row[problem.cell][0]
    return Diagnostic(code="order-file", message=problem.message, label=Label(span=span))
