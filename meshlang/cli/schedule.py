"""`meshlang schedule`: a pipeline's timeline under stated costs, and other schedules beside it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..compiler import load
from ..diagnostics import Diagnostic, Label, counted
from ..source import Source
from .progress import progress
from .request import RANKS, SPEC, laid_over, planned, request, show

if TYPE_CHECKING:
    from ..pipeline.compare import Candidate
    from ..pipeline.costs import Costs
    from ..pipeline.fit import Search
    from ..pipeline.ir import Program
    from ..plan.ir import Plan

#: Above it, sums of times are no longer exact to a part of a thousand.
_LONGEST = 1e9


class _Finite(click.FloatRange):
    """A range without what float() also reads: nan, inf, and numbers whose sums are infinite."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not number <= _LONGEST:
            self.fail(f"{value} is not a number from 0 to {_LONGEST:g}.", param, ctx)
        return number


_TIME = _Finite(min=0)
_SHARE = _Finite(min=0, max=1)


def _costs(command: Callable[..., Any]) -> Callable[..., Any]:
    """What operations and messages cost; a unit is the forward of one sequence on one rank's share of the model."""
    options = (
        click.option("--backward", type=_TIME, default=2.0, show_default=True, help="Backward, in forwards."),
        click.option("--weights", type=_SHARE, default=0.5, show_default=True, help="Part of it for weights."),
        click.option(
            "--attention", type=_SHARE, help="Part of a forward.  [default: 0; of the model, where `lengths` differ]"
        ),
        click.option("--attention-backward", type=_TIME, default=2.5, show_default=True, help="In its forwards."),
        click.option(
            "--slices",
            type=click.Choice(["equal", "flops"]),
            help="Of equal tokens or time.  [default: as the spec says]",
        ),
        click.option("--latency", type=_TIME, default=0.0, show_default=True, help="Of a message, in a node."),
        click.option("--transfer", type=_TIME, default=0.0, show_default=True, help="Of one sequence's states."),
        click.option("--latency-between", type=_TIME, help="The same between nodes.  [default: as in a node]"),
        click.option("--transfer-between", type=_TIME, help="The same between nodes.  [default: as in a node]"),
        click.option("--head", type=_TIME, default=0.0, show_default=True, help="Of the model's head, forward."),
        click.option("--sync", type=_TIME, default=0.0, show_default=True, help="Sum of a share's gradients over two."),
        click.option("--sync-between", type=_TIME, help="The same between nodes.  [default: as in a node]"),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command("schedule")
@SPEC
@RANKS
@click.option("--svg", "svg_file", type=click.Path(dir_okay=False), help="Write a picture of the timeline.")
@click.option("--trace", "trace_file", type=click.Path(dir_okay=False), help="Write a trace for Perfetto or Chrome.")
@click.option("--json", "as_json", is_flag=True, help="Places, order, peaks, makespan and bubble as one document.")
@click.option("--compare", is_flag=True, help="Every schedule at the spec's numbers, and half depth x dp 2.")
@click.option("--fit", type=_TIME, metavar="LIMIT", help="The fastest under a memory limit, in activations of a share.")
@click.option("--state", type=_TIME, default=0.0, show_default=True, help="Of a share's parameters, for --fit.")
@_costs
@laid_over
def schedule_command(
    spec: str,
    ranks: int | None,
    svg_file: str | None,
    trace_file: str | None,
    as_json: bool,
    compare: bool,
    fit: float | None,
    state: float,
    sets: tuple[str, ...],
    on: str | None,
    form: str,
    **times: Any,
) -> None:
    """What each rank of the pipeline does when. Times: of a sequence's forward on one rank's share of the model."""
    if as_json + compare + (fit is not None) > 1:
        raise click.UsageError("--json, --compare and --fit are one of three")
    if state and fit is None:
        raise click.UsageError("--state goes with --fit LIMIT")
    asked = request(spec, ranks=ranks, sets=sets, on=on)
    plan = planned(asked, form)
    program = _program(plan)
    node = load(asked).topology.ranks_per_node
    _between_nodes(times, node is not None)
    costs = _costs_of(plan, None if node is None else node.value, times)
    if compare or fit is not None:
        told = _compared(plan, program, costs) if fit is None else _fitting(plan, program, costs, fit, state)
        if isinstance(told, Diagnostic):
            show([told], form)
            sys.exit(1)
        click.echo(told, nl=False)
        return
    _show(plan, program, costs, svg_file, trace_file, as_json)


def _show(
    plan: Plan, program: Program, costs: Costs, svg_file: str | None, trace_file: str | None, as_json: bool
) -> None:
    """One schedule, simulated: as text, or into the files that are asked for."""
    from ..pipeline.simulate import simulate
    from ..report.schedule import schedule_data, timeline_text
    from ..report.timeline import svg, trace

    assert plan.pipeline is not None
    with progress("schedule", 1, "simulation"):
        timeline = simulate(program, costs)
    if svg_file is not None:
        _write(svg_file, svg(f"{plan.pipeline.schedule}, {counted(program.ranks, 'rank')}", program, timeline))
    if trace_file is not None:
        _write(trace_file, json.dumps(trace(program, timeline)))
    if as_json:
        click.echo(json.dumps(schedule_data(program, timeline, costs.lengths)))
    elif svg_file is None and trace_file is None:
        click.echo(timeline_text(plan.pipeline.schedule, program, timeline, costs), nl=False)


def _between_nodes(times: dict[str, Any], nodes: bool) -> None:
    """A time between nodes counts only where the spec says how many ranks a node has."""
    idle = [f"--{name.replace('_', '-')}" for name, value in times.items() if name.endswith("_between") and value]
    if idle and not nodes:
        raise click.UsageError(f"{', '.join(idle)}: the spec is one node until [topology] says `ranks_per_node`")


def _program(plan: Plan) -> Program:
    from ..plan.stages import program_of_plan

    if plan.pipeline is None:
        raise click.UsageError("the spec has no [pipeline]")
    if not plan.stages:
        raise click.UsageError("the pipeline has one rank: there is nothing to put in order")
    program = program_of_plan(plan)
    if program is None:
        raise click.UsageError(f"`{plan.pipeline.schedule}` does not say its order")
    return program


def _costs_of(plan: Plan, per_node: int | None, times: dict[str, Any]) -> Costs:
    """The options, and what the spec says: how many ranks of the pipeline share a node, when gradients are summed."""
    from ..plan.slices import costs_of

    (axis,) = plan.axes_of("pipeline")
    inner = plan.mesh.product(plan.mesh.names[plan.mesh.names.index(axis) + 1 :])
    assert plan.pipeline is not None
    slices, own = times.pop("slices"), costs_of(plan)
    times |= {} if times["attention"] is not None else {"attention": own.attention if slices is None else 0.0}
    return replace(
        own,
        split=slices or "equal",
        lengths=own.lengths if slices is None else (),
        ranks_per_node=None if per_node is None else max(1, per_node // inner),
        eager=dict(plan.pipeline.options).get("sync") != "lazy",
        **times,
    )


def _own(plan: Plan, program: Program) -> Candidate:
    from ..pipeline.compare import HELD, LATE, UNEVEN, own

    assert plan.pipeline is not None
    options = dict(plan.pipeline.options)
    uneven = options.get("directions") == "uneven"
    weights = {"late": LATE, "held": HELD}.get(str(options.get("weights")), "")
    return own(plan.pipeline.schedule + (UNEVEN if uneven else "") + weights, program)


def _compared(plan: Plan, program: Program, costs: Costs) -> str:
    from ..pipeline.compare import beside, compared
    from ..report.schedule import comparison_text, costs_text

    mine = _own(plan, program)
    with progress("schedules", len(beside(mine))) as tick:
        rows = compared(mine, costs, tick)
    return f"{costs_text(costs)}\n" + comparison_text(rows, (mine.name, mine.numbers))


def _fitting(plan: Plan, program: Program, costs: Costs, limit: float, state: float) -> str | Diagnostic:
    from ..pipeline.fit import Search, fitting, tried
    from ..report.schedule import comparison_text, costs_text

    mine, seq = _own(plan, program), plan.sizes.seq or 0
    at = mine.numbers
    parts = tuple(n for n in (1, 2, 4, 8, 16, 32, at.subsequences) if seq % n == 0)
    modules = sum(len(stage.modules) for stage in plan.stages)
    search = Search(limit=limit, state=state, stages=modules, parts=parts)
    with progress("schedules", len(tried(mine, search))) as tick:
        rows = fitting(mine, costs, search, tick)
    if not rows:
        return _nothing(mine, costs, search)
    told = f"{costs_text(costs)}\nfastest first, under {limit:g}\n"
    return told + comparison_text(rows, (mine.name, mine.numbers), state=state)


def _nothing(mine: Candidate, costs: Costs, search: Search) -> Diagnostic:
    """Nothing that is tried fits; what holds least, and how much, rounded up so that it would fit."""
    from ..pipeline.fit import least, tried

    at = mine.numbers
    with progress("schedules", len(tried(mine, search))) as tick:
        found = least(mine, costs, search, tick)
    what = f"{counted(at.sequences, 'microbatch')} on {counted(at.ranks, 'rank')}"
    cut = found.candidate.numbers
    parts = f"{counted(cut.chunks, 'stage')} a rank, {counted(cut.subsequences, 'subsequence')}"
    note = f"the least that any holds is {ceil(found.memory * 1000) / 1000:.15g}: {found.candidate.name}, {parts}"
    text = f"{search.limit:.15g}"
    span = Source(name="--fit", text=text).span(0, len(text))
    message = f"no schedule of {what} stays under {text}"
    return Diagnostic(code="nothing-fits", message=message, label=Label(span=span), notes=(note,))


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error.strerror}") from error
    click.echo(f"wrote {path}")
