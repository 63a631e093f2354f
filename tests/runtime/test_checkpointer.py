"""What torch raises of a checkpoint that cannot be read or written, as one finding."""

from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save as write

from meshlang.runtime.checkpointer import left, told_once
from meshlang.runtime.checkpoints import CheckpointError, problem_of

pytestmark = pytest.mark.filterwarnings("ignore")


def save(path: Path) -> Path:
    """A checkpoint of one tensor."""
    write({"weight": torch.ones(4096)}, checkpoint_id=path, no_dist=True)
    return path


def test_bytes_that_changed_are_one_finding(tmp_path: Path) -> None:
    """A file whose length is right and whose bytes are not is found on reading, and told with torch's reason."""
    path = save(tmp_path / "step-4")
    (file,) = path.glob("*.distcp")
    file.write_bytes(bytes(file.stat().st_size))
    assert problem_of(path) == ""
    with (
        pytest.raises(CheckpointError) as refused,
        told_once("checkpoint-damaged", "step-4 cannot be read", tuple),
    ):
        load({"weight": torch.zeros(4096)}, checkpoint_id=path, no_dist=True)
    assert refused.value.code == "checkpoint-damaged"
    assert refused.value.message.startswith("step-4 cannot be read; rank 0: ")
    assert "\n" not in refused.value.message
    assert refused.value.notes == ()


def test_a_save_that_fails_names_what_is_left(tmp_path: Path) -> None:
    """The finding of a failed save has the reason, the room that is left, and the last whole checkpoint."""
    before = save(tmp_path / "step-4")
    (tmp_path / "step-6").write_text("a file is in the way")
    with (
        pytest.raises(CheckpointError) as refused,
        told_once("checkpoint-folder", "step 6 cannot be saved", lambda: left(str(tmp_path))),
    ):
        _ = save(tmp_path / "step-6")
    assert refused.value.code == "checkpoint-folder"
    assert refused.value.message.startswith("step 6 cannot be saved; rank 0: ")
    room, whole = refused.value.notes
    assert room.endswith(" bytes are free there")
    assert whole == f"last whole checkpoint: {before}"
