"""A launch keeps the folder of its checkpoints to itself."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from meshlang.runtime.checkpoints import CheckpointError
from meshlang.runtime.holding import held


def test_a_folder_has_one_launch(tmp_path: Path) -> None:
    """A second launch is refused while the first runs, and not after it."""
    folder = str(tmp_path / "out" / "checkpoint")
    with held(folder), pytest.raises(CheckpointError, match="another launch saves") as refused, held(folder):
        pass
    assert refused.value.code == "checkpoint-folder"
    with held(folder):
        assert Path(folder).is_dir()


def test_a_file_system_without_locks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nothing can be locked the launch goes on, and says that nobody keeps others away."""

    def none(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    with held(str(tmp_path)):
        assert "cannot be kept from other launches (No locks available)" in capsys.readouterr().err
