"""The parity table: a row for each step that was held against one rank, written when a run ends.

`MESHLANG_PARITY=FILE` says where to; `make parity` sets it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from meshlang.plan.ir import Plan
from meshlang.testing.parity import Report, differences

HEAD = ["model", "runs as", "mesh", "with", "type", "ranks", "loss", "worst gradient", "placed", "collectives"]


@dataclass(frozen=True, kw_only=True, order=True)
class Row:
    """What one case showed, over all of its ranks."""

    model: str
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

    def cells(self) -> list[str]:
        """As the table shows it."""
        placed = "as planned" if not self.misplaced else f"{self.misplaced} elsewhere"
        calls = f"{self.calls}, as planned" if not self.unplanned else f"{self.unplanned} differ"
        errors = f"{self.loss:.1e}", f"{self.gradient:.1e}"
        return [self.model, self.runs_as, self.mesh, self.options, self.dtype, str(self.ranks), *errors, placed, calls]


def recording(run: Callable[..., list[Any]], rows: set[Row]) -> Callable[..., list[Any]]:
    """`RankPool.run`, which also notes each answer that is a report on a plan."""

    def run_and_note(target: str, *args: Any, **options: Any) -> list[Any]:
        answers = run(target, *args, **options)
        plan = next((arg for arg in args if isinstance(arg, Plan)), None)
        if plan is not None and all(isinstance(answer, Report) for answer in answers):
            rows.add(row(plan, target, answers))
        return answers

    return run_and_note


def row(plan: Plan, target: str, reports: list[Report]) -> Row:
    """The worst of all ranks."""
    live = [axis for axis in plan.mesh.axes if axis.size > 1]
    return Row(
        model=plan.model,
        runs_as="plain torch" if "plain" in target else "torchtitan",
        ranks=plan.ranks,
        mesh=", ".join(f"{axis.name} {axis.size}" for axis in live) or "one rank",
        options=", ".join(_options(plan)) or "-",
        dtype=plan.precision.compute,
        loss=max(report.loss for report in reports),
        gradient=max(max(report.gradients.values(), default=0.0) for report in reports),
        misplaced=sum(len(report.misplaced) for report in reports),
        unplanned=sum(len(differences(plan, report.counts, rank)) for rank, report in enumerate(reports)),
        calls=sum(reports[0].counts.values()),
    )


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
    if plan.pipeline is not None:
        words.append(f"{plan.pipeline.schedule}, {plan.pipeline.microbatches} microbatches")
    words += [f"{plan.sizes.accumulation} passes"] if plan.sizes.accumulation > 1 else []
    return words


def write(path: Path, rows: set[Row]) -> None:
    """The table as Markdown."""
    torch, titan = version("torch"), version("torchtitan")
    lines = [
        "# Parity",
        "",
        "Made by `make parity`. Loss and every gradient of one training step on gloo ranks, against one process:",
        "the largest error over ranks and tensors, relative to the largest value of the tensor. The tests hold",
        "them below 1e-12 in float64 and 5e-6 in float32; every local shape and placement to the plan's, and",
        "every collective (kind, axis, pass, bytes, count) to the plan's list, on every rank.",
        "",
        f"{len(rows)} cases, torch {torch.partition('+')[0]}, torchtitan {titan}.",
        "",
        f"| {' | '.join(HEAD)} |",
        f"|{'---|' * len(HEAD)}",
        *(f"| {' | '.join(each.cells())} |" for each in sorted(rows)),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
