"""`meshlang schedule`: the timeline, its pictures and document, and other schedules beside it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pipelines import FOUR_RANKS

from meshlang.cli import main
from meshlang.compiler import Request, compile
from meshlang.pipeline.laws import program_problems
from meshlang.pipeline.notation import read_program
from meshlang.plan.data import from_json, to_json
from meshlang.plan.stages import program_of_plan

SPEC = FOUR_RANKS.replace("chunks = 1", "subsequences = 2\nchunks = 1")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A spec of BSIPipe on four ranks."""
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    return path


def run(*args: object) -> Result:
    """A command line, in this process."""
    return CliRunner().invoke(main, [str(arg) for arg in args])


def test_timeline_is_told(spec: Path) -> None:
    """Makespan, bubble, peak and copies stand above what each rank does when."""
    result = run("schedule", spec)
    assert result.exit_code == 0
    assert "bsipipe on 4 ranks: 4 stages, two replicas, 8 microbatches of 2 subsequences" in result.output
    assert "makespan 26, bubble 7.69 %, peak activations 3, parameters 2x" in result.output
    lines = [line.split() for line in result.output.splitlines() if line.strip().startswith(("0 ", "3 "))]
    assert [line[1].upper() for line in lines[:1]] == [line[1].upper() for line in lines[1:]]
    assert lines[0][1].swapcase() == lines[1][1]


def test_document_has_these_keys(spec: Path) -> None:
    """The JSON document has the places, the order and the figures, and is a Program that keeps the laws."""
    data = json.loads(run("schedule", spec, "--json").output)
    figures = ["peak_activations", "makespan", "bubble"]
    assert list(data) == ["ranks", "stages", "replicas", "sequences", "subsequences", "hosts", "order", *figures]
    assert data["order"][0][0] == {"op": "F", "replica": 0, "sequence": 0, "subsequence": 0, "stage": 0}
    assert data["hosts"][4] == {"replica": 1, "stage": 0, "rank": 3}
    assert data["peak_activations"] == [3.0] * 4
    assert program_problems(read_program(data)) == []


def test_pictures_hold_every_operation(spec: Path, tmp_path: Path) -> None:
    """The picture has a box, and the trace an event, for each operation."""
    svg, trace = tmp_path / "a.svg", tmp_path / "a.json"
    result = run("schedule", spec, "--svg", svg, "--trace", trace)
    assert result.output == f"wrote {svg}\nwrote {trace}\n"
    boxes = [each for each in ET.parse(svg).iter() if each.tag.endswith("title")]
    events = [each for each in json.loads(trace.read_text())["traceEvents"] if each["ph"] == "X"]
    assert len(boxes) == len(events) == 8 * 2 * 4 * 2
    assert max(each["ts"] + each["dur"] for each in events) == pytest.approx(26_000)
    assert {each["tid"] for each in events} == {0, 1, 2, 3}


def test_comparison_has_half_depth(spec: Path) -> None:
    """Beside every schedule stands half depth x dp 2, which is as fast and holds as much."""
    lines = run("schedule", spec, "--compare").output.splitlines()
    ours = next(line for line in lines if " bsipipe " in line)
    half = next(line for line in lines if "half depth x dp 2" in line)
    assert ours.split()[-4:] == half.split()[-4:] == ["26", "7.69", "3", "2x"]
    assert ours.startswith("  >")
    assert {"seq1f1b", "seq1f1b_interleaved", "seqv", "chimera", "zbv"} <= {line.split()[0] for line in lines if line}


def test_fastest_that_fits(spec: Path) -> None:
    """Under a memory limit the fastest comes first, copies of parameters counted where they are said to cost."""
    free = run("schedule", spec, "--fit", 2.1).output.splitlines()
    paid = run("schedule", spec, "--fit", 2.1, "--state", 1).output.splitlines()
    assert free[1] == "fastest first, under 2.1"
    assert free[3].split()[-1] == "2x"
    assert all(line.split()[-2] == "1x" for line in paid[3:])


@pytest.mark.parametrize("options", [(), ("--state", 1), ("--attention", 0.3, "--transfer", 0.1)])
def test_least_is_told_where_nothing_fits(spec: Path, options: tuple[object, ...]) -> None:
    """Under a limit that nothing stays under the command fails, and with the least that it tells something fits."""
    result = run("schedule", spec, "--fit", 0.01, *options)
    assert result.exit_code == 1
    assert "error[nothing-fits]: no schedule of 8 microbatches on 4 ranks stays under 0.01" in result.output
    found = re.search(r"the least that any holds is ([0-9.]+): (\w+),", result.output)
    assert found is not None
    least, name = found.groups()
    fits = run("schedule", spec, "--fit", least, *options)
    assert fits.exit_code == 0
    assert [line.split()[0] for line in fits.output.splitlines()[3:]] == [name]
    assert run("schedule", spec, "--fit", float(least) - 0.001, *options).exit_code == 1


def test_comparison_has_own_order(spec: Path, tmp_path: Path) -> None:
    """An order file's own order is the first row, marked; the other rows are at its numbers."""
    order = ["0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1"]
    (tmp_path / "own.csv").write_text("\n".join(order) + "\n")
    own = 'schedule = "csv"\nfile = "own.csv"\nmicrobatches = 2\n'
    spec.write_text(SPEC.partition("schedule =")[0].replace("pp = 4", "pp = 2") + own)
    lines = run("schedule", spec, "--compare").output.splitlines()
    assert lines[2].split()[:5] == [">", "csv", "2", "x", "1"], lines
    assert sum(line.strip().startswith(">") for line in lines) == 1


def test_costs_change_the_times(spec: Path) -> None:
    """Attention, links, the head and sums of gradients are costs; with none the closed form holds."""
    makespans = [
        json.loads(run("schedule", spec, "--json", *options).output)["makespan"]
        for options in ([], ["--latency", 0.1], ["--attention", 0.4], ["--sync", 2], ["--head", 0.5], ["--backward", 3])
    ]
    assert makespans[0] == 26
    assert all(each > 26 for each in makespans[1:])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--state", 1], "--state goes with --fit LIMIT"),
        (["--transfer-between", 1], "--transfer-between: the spec is one node until [topology] says `ranks_per_node`"),
        (["--latency-between", 1, "--sync-between", 2, "--compare"], "--latency-between, --sync-between: the spec"),
    ],
)
def test_cost_that_counts_nowhere_is_refused(spec: Path, options: list[object], told: str) -> None:
    """A cost that no time depends on is wrong usage, and not a figure that passes for an answer."""
    result = run("schedule", spec, *options)
    assert result.exit_code == 2
    assert told in result.output
    nodes = ("--set", "topology.ranks_per_node=2", "--fit", 3)
    assert run("schedule", spec, *(each for each in options if each != "--compare"), *nodes).exit_code == 0


def test_costs_are_all_told(spec: Path) -> None:
    """The share of weights in a backward changes a schedule that has them apart, so it is told."""
    told = run("schedule", spec, "--set", "pipeline.weights=late", "--weights", 0.2).output
    assert "costs: forward 1, backward 2, 0.2 of it for weights" in told
    assert "for weights" not in run("schedule", spec).output


@pytest.mark.parametrize("options", [["--compare", "--json"], ["--fit", 1, "--compare"]])
def test_one_answer_at_a_time(spec: Path, options: list[object]) -> None:
    """Two of the forms of answer at once are wrong usage."""
    result = run("schedule", spec, *options)
    assert result.exit_code == 2
    assert "are one of three" in result.output


def test_without_a_pipeline_there_is_no_order(spec: Path) -> None:
    """A spec without [pipeline], or with one rank along pp, has nothing to put in order."""
    assert "one rank" in run("schedule", spec, "--set", "mesh.pp=1").output
    spec.write_text(SPEC.partition("[pipeline]")[0].replace("pp = 4", "dp = 1"))
    assert "the spec has no [pipeline]" in run("schedule", spec).output


def test_plan_of_two_replicas_is_read_back(spec: Path) -> None:
    """A plan with a Program goes through JSON unchanged; torch's orders are Programs too."""
    plan = compile(Request.of(spec))
    assert from_json(to_json(plan)) == plan
    assert plan.replicas == 2
    spec.write_text(SPEC.replace("bsipipe", "1f1b").replace("subsequences = 2\n", ""))
    plan = compile(Request.of(spec))
    program = program_of_plan(plan)
    assert program is not None
    assert program_problems(program) == []
    assert plan.pipeline is not None
    assert plan.pipeline.program is None


@pytest.mark.parametrize("number", ["nan", "inf", "1e308"])
@pytest.mark.parametrize("option", ["--backward", "--attention", "--latency", "--fit"])
def test_times_are_finite_numbers(spec: Path, option: str, number: str) -> None:
    """What float() reads and no sum of times can hold is wrong usage."""
    result = run("schedule", spec, option, number)
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.output
