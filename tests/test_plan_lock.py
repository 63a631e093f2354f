"""`meshlang plan --lock`: a plan as a golden file."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from meshlang.cli import main

SPEC = """meshlang = 1
include = ["preset:tensor_parallel", "preset:fsdp"]
model = "llama/tiny"

[mesh]
dp = "rest"
tp = 2

[sizes]
batch = 8
seq = 128
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a spec, which is the working directory."""
    (tmp_path / "good.toml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan(*words: str) -> Result:
    """`meshlang plan`, in this process."""
    return CliRunner().invoke(main, ("plan", *words), prog_name="meshlang", catch_exceptions=False)


def lock(*words: str) -> Result:
    """`plan --lock plan.lock.toml` of the spec."""
    return plan("good.toml", "--ranks", "4", "--lock", "plan.lock.toml", *words)


def test_a_missing_lock_is_written(here: Path) -> None:
    """Without the file it is made, and the next run finds it equal and says nothing."""
    assert (lock().exit_code, (here / "plan.lock.toml").exists()) == (0, True)
    assert (lock().exit_code, lock().output) == (0, "")


def test_drift_from_a_lock_exits_with_1(here: Path) -> None:
    """A plan that differs from the file shows how, and leaves the file as it is."""
    lock()
    before = (here / "plan.lock.toml").read_text()
    result = lock("--set", "mesh.tp=4")
    assert result.exit_code == 1
    assert "-tp = 2" in result.output
    assert "+tp = 4" in result.output
    assert (here / "plan.lock.toml").read_text() == before


def test_update_writes_a_lock_anew(here: Path) -> None:
    """`--update` takes the new plan for the golden one."""
    lock()
    assert lock("--set", "mesh.tp=4", "--update").exit_code == 0
    assert (lock().exit_code, lock("--set", "mesh.tp=4").exit_code) == (1, 0)


@pytest.mark.parametrize("name", [".", "no/such/folder.toml"])
def test_a_lock_that_cannot_be_written_is_usage(here: Path, name: str) -> None:
    """A folder, or a file in a folder that is not there, is wrong usage."""
    assert plan("good.toml", "--ranks", "4", "--lock", name).exit_code == 2


def test_update_needs_a_lock(here: Path) -> None:
    """`--update` without `--lock` is wrong usage."""
    assert plan("good.toml", "--ranks", "4", "--update").exit_code == 2


def test_a_lock_prints_no_json(here: Path) -> None:
    """`--json` beside `--lock` is wrong usage, and writes no file."""
    assert lock("--json").exit_code == 2
    assert not (here / "plan.lock.toml").exists()


def test_a_lock_shows_no_rank(here: Path) -> None:
    """`--rank` chooses what is printed, and a lock prints nothing: both at once are wrong usage."""
    result = lock("--rank", "1")
    assert (result.exit_code, "--rank" in result.output) == (2, True)


def test_a_lock_holds_the_order_of_a_file(here: Path) -> None:
    """Another order of actions under one file name is a drift, and the lock shows it rank by rank."""
    pipeline = '\n[pipeline]\nschedule = "csv"\nmicrobatches = 2\nfile = "order.csv"\n'
    (here / "good.toml").write_text(SPEC.replace('dp = "rest"', 'pp = 2\ndp = "rest"') + pipeline)
    (here / "order.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    assert lock().exit_code == 0
    (here / "order.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n")
    result = lock()
    assert result.exit_code == 1
    assert '-    "1F0 1B0 1F1 1B1",' in result.output
    assert '+    "1F0 1F1 1B0 1B1",' in result.output
