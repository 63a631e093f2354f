"""Every example is checked, planned, and its plan held against a golden file.

`MESHLANG_UPDATE=1` writes the golden files anew; read the difference before it is committed.
"""

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from meshlang.cli import main
from meshlang.compiler import Request, check, compile
from meshlang.format import formatted
from meshlang.plan.data import from_json, to_json
from meshlang.report.lock import lock_text
from meshlang.report.plan import plan_text
from meshlang.source import Source

EXAMPLES = Path(__file__).parents[2] / "examples"
LOCKS = Path(__file__).parent / "locks"
SPECS = sorted(EXAMPLES.glob("*.toml"))

every_example = pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)


@every_example
def test_examples_have_no_findings(path: Path) -> None:
    """Every example is checked in silence."""
    assert check(Request.of(path)) == ()


@every_example
def test_example_plans_match_locks(path: Path) -> None:
    """The plan of every example is the one in its golden file."""
    lock = LOCKS / f"{path.stem}.lock.toml"
    text = lock_text(compile(Request.of(path)))
    if os.environ.get("MESHLANG_UPDATE") == "1":
        lock.write_text(text)
    assert lock.read_text() == text


@every_example
def test_example_plans_read_back(path: Path) -> None:
    """The plan of every example is equal to itself after JSON."""
    plan = compile(Request.of(path))
    assert from_json(to_json(plan)) == plan


@every_example
def test_examples_print_plans(path: Path) -> None:
    """The text of every example's plan begins with its model and its ranks."""
    plan = compile(Request.of(path))
    assert plan_text(plan).startswith(f"{plan.model} on {plan.ranks} ranks")


@every_example
def test_examples_say_what_they_are(path: Path) -> None:
    """Every example names its schema, and then begins with a comment."""
    assert path.read_text().startswith("#:schema ../schema/spec.json\n# ")


@every_example
def test_examples_are_formatted(path: Path) -> None:
    """Every example is as `meshlang fmt` writes it."""
    assert formatted(path.read_text()) == path.read_text()


def test_command_checks_examples_silently() -> None:
    """`meshlang check examples/*.toml` prints nothing and exits 0."""
    result = CliRunner().invoke(main, ["check", *map(str, SPECS)])
    assert (result.exit_code, result.output) == (0, "")


def test_readme_lists_all_examples() -> None:
    """README.md of the examples has one line for each, and lists nothing else."""
    listed = re.findall(r"^- `([^`]+)`: \S", (EXAMPLES / "README.md").read_text(), flags=re.MULTILINE)
    assert sorted(listed) == [path.name for path in SPECS]


def test_every_lock_has_an_example() -> None:
    """No golden file outlives its example."""
    assert {lock.name.removesuffix(".lock.toml") for lock in LOCKS.iterdir()} == {path.stem for path in SPECS}


def test_lines_of_examples_are_short() -> None:
    """No comment of an example is longer than a line of code may be."""
    comments = [line for path in SPECS for line in path.read_text().splitlines() if line.startswith("#")]
    assert max(map(len, comments)) <= 120


def test_launched_examples_name_recipes() -> None:
    """Examples with a recipe say how many ranks, and their mesh has as many."""
    for path in SPECS:
        launch = re.search(r"^\[launch\]\nrecipe = .*\nranks = (\d+)$", path.read_text(), flags=re.MULTILINE)
        if launch is not None:
            assert compile(Request.of(path)).ranks == int(launch[1])


MACHINES = {None: (4, 2), "two_nodes": (2, 8), "one_gpu": (1, 1)}


@pytest.mark.parametrize("machine", MACHINES)
def test_machines_change_the_mesh(machine: str | None) -> None:
    """`--on` gives the example of several machines another mesh, and the rest stays."""
    plan = compile(Request.of(EXAMPLES / "machines.toml", on=machine))
    assert tuple(axis.size for axis in plan.mesh.axes) == MACHINES[machine]


def test_presets_plan_as_plain_rules() -> None:
    """Presets give the tensors and collectives of the same rules written out."""
    plain = compile(Request.of(EXAMPLES / "llama_tiny_sequence_parallel.toml"))
    presets = tuple(f'"preset:{name}"' for name in ("fsdp", "tensor_parallel", "sequence_parallel"))
    kept = re.sub(
        r"\[place\].*?(?=\[launch\])",
        "",
        Path(EXAMPLES / "llama_tiny_sequence_parallel.toml").read_text(),
        flags=re.DOTALL,
    )
    included = kept.replace("[mesh]", f"include = [{', '.join(presets)}]\n\n[mesh]", 1)
    path = str(EXAMPLES / "written_in_memory.toml")
    made = compile(Request(source=Source(name=path, text=included)))
    assert lock_text(made) == lock_text(plain)
