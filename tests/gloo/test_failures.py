"""How a launch ends: told once, with nothing left running. Each test is one launch or two."""

import os
import signal
from pathlib import Path

import pytest

from meshlang.testing.launched import Launched
from meshlang.testing.trained import free_port

LONG = 100_000


def test_a_killed_rank_ends_the_run(tmp_path: Path) -> None:
    """One line names the rank, the signal, the step and the checkpoint; the exit code is 1 and no rank is left."""
    with Launched(tmp_path, steps=LONG) as run:
        run.at(3)
        os.kill(run.ranks()[1], signal.SIGKILL)
        assert run.end() == 1
        (said,) = run.said()
        assert said.startswith("meshlang: rank 1 was killed by SIGKILL, at step ")
        assert "out/checkpoint/step-" in said
        assert said.endswith("the run ends")
        assert "Traceback" not in run.text()
        assert run.ranks() == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_every_rank(tmp_path: Path, number: signal.Signals) -> None:
    """A signal for the launcher ends all ranks in order; the exit code and one line say which it was."""
    with Launched(tmp_path, steps=LONG) as run:
        run.at(1)
        run.process.send_signal(number)
        assert run.end() == 128 + number
        (said,) = run.said()
        assert said.startswith(f"meshlang: {number.name} ended the run; ")
        assert "Traceback" not in run.text()
        assert run.ranks() == {}


def test_an_exception_of_one_rank_is_told_once(tmp_path: Path) -> None:
    """The message of the rank that raised stands in one line, whatever its neighbours say of it."""
    where = {"PYTHONPATH": str(Path(__file__).parent)}
    with Launched(tmp_path, steps=2, recipe="failing:broken", environment=where) as run:
        assert run.end() == 1
        (said,) = run.said()
        assert said.startswith("meshlang: rank 1 failed: ValueError: seven is not a batch, before its first step; ")
        assert run.ranks() == {}


def test_two_nodes_train_together(tmp_path: Path) -> None:
    """Two launches of two nodes, a rank each, meet at one address and make two steps."""
    options = ["--nnodes", "2", "--rdzv-endpoint", f"localhost:{free_port()}"]
    with (
        Launched(tmp_path, steps=2, options=options, name="a") as one,
        Launched(tmp_path, steps=2, options=options, name="b") as other,
    ):
        assert (one.end(), other.end()) == (0, 0), one.text() + other.text()
        assert [step for step, _ in one.losses()] == [1, 2]
        assert one.losses() == other.losses()
        assert {"[rank0]:" in each.text() for each in (one, other)} == {True, False}
        assert (tmp_path / "out" / "checkpoint" / "step-2" / ".metadata").is_file()
