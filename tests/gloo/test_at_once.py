"""Launches at one time on one machine."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from meshlang.testing.launched import Launched


def test_launches_at_one_time_train_apart(tmp_path: Path) -> None:
    """Two launches that begin in one moment both train to their end, with the same losses, each in its own folder."""
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    with ExitStack() as stack:
        runs = [stack.enter_context(Launched(folder, steps=2)) for folder in folders]
        ends = [run.end(480) for run in runs]
        assert ends == [0, 0], [run.text() for run in runs]
        losses = [run.losses() for run in runs]
        assert [step for step, _ in losses[0]] == [1, 2]
        assert losses[0] == losses[1]
        assert all((run.dump / "checkpoint" / "step-2" / ".metadata").exists() for run in runs)
        assert [run.ranks() for run in runs] == [{}, {}]
