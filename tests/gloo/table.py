"""The parity table: a row for each case that was held against one rank, written when a run ends.

`MESHLANG_PARITY=FILE` says where to; `make parity` sets it. Rows are kept in FILE.rows as they are made, so
that a run that was broken off goes on: `make parity-more`.
"""

import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rows import EACH

from meshlang.fold import fold
from meshlang.plan.ir import Plan
from meshlang.plan.slices import lengths_of
from meshlang.testing.parity import Report, differences

HEAD = [
    "model",
    "case",
    "runs as",
    "mesh",
    "with",
    "ranks",
    *(f"{what}, {dtype}" for dtype in EACH for what in ("loss", "gradient")),
    "placed",
    "collectives",
    "bytes",
]


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one case showed in one element type, over all of its ranks.

    Attributes:
        test: pytest's name of it.
        calls, bytes: of the collectives that the busiest rank issued in a step.
    """

    test: str
    model: str
    case: str
    runs_as: str
    ranks: int
    mesh: str
    options: str
    dtype: str
    loss: float
    gradient: float
    misplaced: int
    unplanned: int
    calls: int
    bytes: int

    @property
    def key(self) -> tuple[Any, ...]:
        """What the element types of one row share, in the order of the table."""
        return (self.model, self.runs_as, self.ranks, self.mesh, self.case, self.options)


def kept(path: Path) -> list[Row]:
    """Rows that were made for a table so far."""
    try:
        return [Row(**json.loads(line)) for line in _beside(path).read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        return []


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.rows")


def recording(run: Callable[..., list[Any]], path: Path) -> Callable[..., list[Any]]:
    """`RankPool.run`, which also notes each answer that is a report on a plan."""

    def run_and_note(target: str, *args: Any, **options: Any) -> list[Any]:
        answers = run(target, *args, **options)
        plan = next((arg for arg in args if isinstance(arg, Plan)), None)
        test = re.match(r"(.+\[[^,]+, (.+), b?float\d\d\]) \(call\)", os.environ.get("PYTEST_CURRENT_TEST", ""))
        reports = [getattr(answer, "report", answer) for answer in answers]
        if plan is not None and test and all(isinstance(report, Report) for report in reports):
            with _beside(path).open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row(plan, test, target, reports))) + "\n")
        return answers

    return run_and_note


def row(plan: Plan, test: re.Match[str], target: str, reports: list[Report]) -> Row:
    """The worst of all ranks."""
    live = [axis for axis in plan.mesh.axes if axis.size > 1]
    return Row(
        model=plan.model,
        test=test[1],
        case=test[2],
        runs_as=_runs_as(target),
        ranks=plan.ranks,
        mesh=", ".join(f"{axis.name} {axis.size}" for axis in live) or "one rank",
        options=", ".join(_options(plan)) or "-",
        dtype=plan.precision.compute,
        loss=max(report.loss for report in reports),
        gradient=max(max(report.gradients.values(), default=0.0) for report in reports),
        misplaced=sum(len(report.misplaced) for report in reports),
        unplanned=sum(len(differences(plan, report.counts, rank)) for rank, report in enumerate(reports)),
        calls=max(sum(report.counts.values()) for report in reports),
        bytes=max(sum(size * count for (*_, size), count in report.counts.items()) for report in reports),
    )


def _runs_as(target: str) -> str:
    """Whose modules compute."""
    libraries = {"plain_decoder": "plain torch", "hf_models": "transformers"}
    return libraries.get(target.partition(":")[0], "torchtitan")


def _options(plan: Plan) -> list[str]:
    """What the mesh does not tell: where weights are stored, what cuts the sequence, who runs over an axis."""
    stored = sorted({axis for tensor in plan.tensors for axis in tensor.stored if plan.mesh.size(axis) > 1})
    tensor = set(plan.axes_of("tensor"))
    cut = {
        axis
        for edge in plan.edges
        for names, axes in zip(edge.names, edge.dst.dims, strict=True)
        if names[0] == "seq"
        for axis in axes
        if axis in tensor and plan.mesh.size(axis) > 1
    }
    words = [f"stored over {'+'.join(stored)}"] if stored else []
    words += [f"sequence over {axis}" for axis in sorted(cut)]
    words += [use.name for use in plan.strategies]
    words += [f"recomputed: {', '.join(fold(plan.recompute, [edge.module for edge in plan.edges]))}"] * bool(
        plan.recompute
    )
    if plan.pipeline is not None:
        words.append(f"{plan.pipeline.schedule}, {plan.pipeline.microbatches} microbatches")
        known = lengths_of(plan)
        words += [f"subsequences of {', '.join(map(str, known))} tokens"] if known else []
    words += [f"{plan.sizes.accumulation} passes"] if plan.sizes.accumulation > 1 else []
    return words


def cells(mine: list[Row]) -> list[str]:
    """One line of the table: a case in each element type that was run."""
    first, by_type = mine[0], {row.dtype: row for row in mine}
    figures = [word for dtype in EACH for word in _figures(by_type.get(dtype))]
    misplaced, unplanned = (sum(getattr(row, name) for row in mine) for name in ("misplaced", "unplanned"))
    placed = "as planned" if not misplaced else f"{misplaced} elsewhere"
    calls = f"{first.calls}, as planned" if not unplanned else f"{unplanned} differ"
    size = f"{by_type['float32'].bytes:,}" if "float32" in by_type else "failed"
    where = [first.model, first.case, first.runs_as, first.mesh, first.options, str(first.ranks)]
    return [*where, *figures, placed, calls, size]


def _figures(row: Row | None) -> tuple[str, str]:
    """(loss, gradient); a run that ended in an exception has none."""
    return ("failed", "failed") if row is None else (f"{row.loss:.1e}", f"{row.gradient:.1e}")


def write(path: Path, rows: list[Row]) -> None:
    """The table as Markdown."""
    torch, titan = version("torch"), version("torchtitan")
    lines: dict[tuple[Any, ...], list[Row]] = {}
    narrow = sorted((row for row in rows if row.dtype not in EACH), key=lambda row: row.key)
    rows = [row for row in rows if row.dtype in EACH]
    for each in sorted(rows, key=lambda row: row.key):
        lines.setdefault(each.key, []).append(each)
    text = [
        "# Parity",
        "",
        "Made by `make parity`. Loss and every gradient of one training step on gloo ranks, against one process:",
        "the largest error over ranks and tensors, relative to the largest value of the tensor. The tests hold",
        "them below 1e-12 in float64 and 5e-6 in float32; every local shape and placement to the plan's, and",
        "every collective (kind, axis, pass, bytes, count) to the plan's list, on every rank. The last two columns",
        "are the calls and, in float32, the bytes of the busiest rank's collectives in one step.",
        "",
        f"{len(lines)} cases, {len(rows)} runs, torch {torch.partition('+')[0]}, torchtitan {titan}.",
        "",
        *(_worst(dtype, [row for row in rows if row.dtype == dtype]) for dtype in EACH),
        "",
        f"| {' | '.join(HEAD)} |",
        f"|{'---|' * len(HEAD)}",
        *(f"| {' | '.join(cells(mine))} |" for mine in lines.values()),
        *_narrow(narrow),
    ]
    path.write_text("\n".join(text) + "\n", encoding="utf-8")


def _narrow(rows: list[Row]) -> list[str]:
    """What was computed in bfloat16, against one process in float32 on the same weights; the tests hold 3e-2."""
    if not rows:
        return []
    head = ["model", "case", "mesh", "with", "ranks", "loss", "gradient", "placed", "collectives"]
    found = [
        [row.model, row.case, row.mesh, row.options, str(row.ranks), *_figures(row)]
        + ["as planned" if not count else f"{count} differ" for count in (row.misplaced, row.unplanned)]
        for row in rows
    ]
    return [
        "",
        "Computed in bfloat16, against one process in float32 on the same weights, which are rounded to bfloat16;",
        "the tests hold 3e-2.",
        "",
        *(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *found)),
    ]


def _worst(dtype: str, rows: list[Row]) -> str:
    """A line on the worst figures of one element type."""
    if not rows:
        return f"- {dtype}: not run"
    loss, gradient = max(row.loss for row in rows), max(row.gradient for row in rows)
    wrong = sum(row.misplaced + row.unplanned for row in rows)
    return f"- {dtype}: worst loss {loss:.1e}, worst gradient {gradient:.1e}, {wrong} departures from the plan"
