"""A run goes on under another spec as if it had never stopped; a checkpoint that does not fit is refused."""

from pathlib import Path
from typing import Any

import pytest

from meshlang.compiler import Request, compile
from meshlang.plan.data import to_data
from meshlang.source import Source
from meshlang.testing.ranks import RankError, RankPool
from meshlang.testing.trained import free_port

SPEC = """
meshlang = 1
model = "{model}"
include = ["preset:fsdp", "preset:tensor_parallel"]
sizes = {{ batch = 4, seq = 64 }}
precision = {{ state = "float32", compute = "float32", reduce = "float32" }}
mesh = {{ dp = {dp}, tp = {tp} }}
"""


def plan(dp: int, tp: int, model: str = "llama/tiny") -> dict[str, Any]:
    """The plan of dp x tp, as its document."""
    text = SPEC.format(dp=dp, tp=tp, model=model)
    return to_data(compile(Request(source=Source(name="resume.toml", text=text), launch=True)))


def train(ranks: RankPool, data: dict[str, Any], count: int, folder: Path, stop: int) -> dict[int, tuple[float, int]]:
    """What rank 0 logged."""
    target = "meshlang.testing.trained:rank_train"
    return ranks.run(target, data, free_port(), str(folder), stop, 4, ranks=count)[0]


def test_losses_go_on_under_another_spec(ranks: RankPool, tmp_path: Path) -> None:
    """Two steps over dp 2 and two over dp 2 x tp 2 have the losses and tokens of four over dp 2."""
    unbroken = train(ranks, plan(2, 1), 2, tmp_path / "unbroken", 4)
    begun = train(ranks, plan(2, 1), 2, tmp_path / "run", 2)
    resumed = train(ranks, plan(2, 2), 4, tmp_path / "run", 4)
    assert (sorted(begun), sorted(resumed)) == ([1, 2], [3, 4])
    for step, (loss, tokens) in (begun | resumed).items():
        assert loss == pytest.approx(unbroken[step][0], rel=1e-6)
        assert tokens == unbroken[step][1]


def test_a_checkpoint_of_another_model_is_refused(ranks: RankPool, tmp_path: Path) -> None:
    """Tensors that differ are named before a step is made, and what was saved stays as it was."""
    train(ranks, plan(1, 1), 1, tmp_path, 2)
    saved = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    other = plan(1, 2)
    other["tensors"] = [each for each in other["tensors"] if each["fqn"] != "norm.weight"]
    with pytest.raises(RankError, match=r"the model has no norm\.weight|norm\.weight"):
        train(ranks, other, 2, tmp_path, 4)
    assert saved == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
