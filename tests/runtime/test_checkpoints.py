"""Which checkpoint a run resumes from, and which it refuses."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

from meshlang.compiler import Request, compile
from meshlang.plan.ir import Plan
from meshlang.runtime.checkpoints import OTHERS, CheckpointError, latest, misfits, problem_of
from meshlang.runtime.resume import free_after, whole
from meshlang.source import Source

SPEC = 'meshlang = 1\nmodel = "llama/tiny"\ninclude = ["preset:tensor_parallel"]\n[mesh]\ntp = 2\n'

pytestmark = pytest.mark.filterwarnings("ignore")


def save(folder: Path, step: int) -> Path:
    """A whole checkpoint of one tensor."""
    path = folder / f"step-{step}"
    dcp.save({"weight": torch.ones(8)}, checkpoint_id=path, no_dist=True)
    return path


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The tiny model over tp 2."""
    return compile(Request(source=Source(name="spec.toml", text=SPEC)))


def saved(plan: Plan, *others: str) -> dict[str, Any]:
    """The names of a checkpoint of the plan's model."""
    tensors = {tensor.fqn: SimpleNamespace(size=tensor.shape) for tensor in plan.tensors if tensor.kind == "parameter"}
    return {**tensors, **{f"{other}.x": object() for other in others}}


def test_the_last_whole_checkpoint_is_chosen(tmp_path: Path) -> None:
    """A later folder without .metadata, as a killed save leaves it, is skipped and said."""
    save(tmp_path, 2)
    save(tmp_path, 10)
    (save(tmp_path, 12) / ".metadata").unlink()
    found, skipped = latest(tmp_path)
    assert found is not None
    assert found.step == 10
    assert [each.problem for each in skipped] == ["saving it was not finished: it has no .metadata"]


def test_a_file_cut_short_is_no_checkpoint(tmp_path: Path) -> None:
    """A checkpoint whose files end before its tensors do is damaged; with no other, nothing begins anew."""
    path = save(tmp_path, 2)
    (path / "__0_0.distcp").write_bytes(b"short")
    with pytest.raises(CheckpointError, match=r"step-2: __0_0\.distcp has 5 of [0-9,]+ bytes"):
        whole(str(tmp_path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A checkpoint asked for by its step says which of its files is missing."""
    (save(tmp_path, 2) / "__0_0.distcp").unlink()
    with pytest.raises(CheckpointError, match=r"step-2 is asked for, and it is not whole: __0_0\.distcp is missing"):
        whole(str(tmp_path), 2)


def test_a_step_that_is_not_there_lists_those_that_are(tmp_path: Path) -> None:
    """A step that was never saved is an error with the steps that were."""
    save(tmp_path, 2)
    with pytest.raises(CheckpointError, match=r"there is no .*step-3\n  checkpoints there: step-2"):
        whole(str(tmp_path), 3)


def test_nothing_saved_begins_anew(tmp_path: Path) -> None:
    """A folder with nothing but an unfinished save starts a run from its first step."""
    (tmp_path / "step-2").mkdir()
    assert whole(str(tmp_path)) is None


def test_later_checkpoints_are_not_overwritten(tmp_path: Path) -> None:
    """Going on from an earlier step than the last is refused: the later saves would be lost."""
    save(tmp_path, 2)
    save(tmp_path, 4)
    found = whole(str(tmp_path), 2)
    assert found is not None
    with pytest.raises(CheckpointError, match=r"would overwrite what was saved later\n  .*step-4: it was saved later"):
        free_after(str(tmp_path), found)


def test_a_checkpoint_of_the_plans_model_fits(plan: Plan) -> None:
    """The same tensors in the same shapes, and what torchtitan saves beside them, is no misfit."""
    assert misfits(plan, saved(plan, *OTHERS), others=OTHERS, data_ranks=1) == []


def test_each_misfit_names_its_tensors(plan: Plan) -> None:
    """Tensors that are missing, that the model has not, and those of another shape are three findings."""
    names = saved(plan, *OTHERS)
    del names["norm.weight"]
    names["layers.9.attention.wq.weight"] = SimpleNamespace(size=(8, 8))
    names["lm_head.weight"] = SimpleNamespace(size=(300, 128))
    assert misfits(plan, names, others=OTHERS, data_ranks=1) == [
        "the checkpoint lacks norm.weight",
        "the model has no layers.9.attention.wq.weight",
        "shapes differ: lm_head.weight is 300 x 128 in the checkpoint and 264 x 128 here",
    ]


def test_a_model_alone_is_not_resumed(plan: Plan) -> None:
    """A last save that holds only the model is told from a damaged one."""
    (found,) = misfits(plan, saved(plan), others=OTHERS, data_ranks=1)
    assert found.startswith("it has no optimizer, lr_scheduler, dataloader, train_state: the last save")


def test_a_loader_with_a_position_a_rank_is_not_moved(plan: Plan) -> None:
    """A loader that saves one position for each data rank does not go on with other data ranks."""
    names = saved(plan, *OTHERS) | {f"dataloader.dp_rank_{rank}": object() for rank in range(4)}
    assert misfits(plan, names, others=OTHERS, data_ranks=4) == []
    (found,) = misfits(plan, names, others=OTHERS, data_ranks=2)
    assert found.startswith("the loader saved a position for each of 4 data ranks, and this run has 2")


def test_an_account_that_calls_something_is_not_read(tmp_path: Path) -> None:
    """A .metadata that would call a function is refused by the function's name, and nothing is called."""
    path = save(tmp_path, 2)
    made = tmp_path / "made"
    call = f"cos\nsystem\n(S'touch {made}'\ntR."
    (path / ".metadata").write_bytes(call.encode())
    assert problem_of(path) == "its .metadata would call `os.system`, which no checkpoint needs; it is not read"
    assert not made.exists()


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("ctorch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING\nS'TORCH_CONTIGUOUS_FORMAT'", ""),
        ("ctorch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING\nS'mro'", "call"),
        ("ctorch.distributed.checkpoint.metadata\nMetadata\nS'__init__'", "call"),
    ],
)
def test_getattr_is_for_members_of_an_enumeration(tmp_path: Path, call: str, problem: str) -> None:
    """Python 3.11.2 saves a layout as an attribute of its enumeration; nothing else is looked up so."""
    account = "ctorch.distributed.checkpoint.metadata\nMetadata\n((dcbuiltins\ngetattr\n(" + call + "\ntRtR."
    (tmp_path / ".metadata").write_bytes(account.encode())
    told = "its .metadata would call `builtins.getattr`, which no checkpoint needs; it is not read"
    assert problem_of(tmp_path) == (told if problem else "")


def test_an_error_crosses_ranks() -> None:
    """A refusal made anew from its arguments, as on another rank, says the same."""
    error = CheckpointError("checkpoint-misfit", "it does not fit", ("a", "b"), key="checkpoint.load_step")
    again = CheckpointError(**error.args_of())
    assert (str(again), again.key) == (str(error), error.key)
    assert str(error) == "error[checkpoint-misfit]: it does not fit\n  a\n  b"
