"""Training in two opposing pipelines of subsequences is training on one rank, also through a checkpoint."""

from pathlib import Path
from typing import Any

import pytest

from meshlang.compiler import Request, compile
from meshlang.plan.data import to_data
from meshlang.testing.ranks import RankPool
from meshlang.testing.trained import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "bsipipe_cpu.toml"
STEPS = 4

Logged = dict[int, tuple[float, int, float]]


def plan(**mesh: int) -> dict[str, Any]:
    """The example's plan on another mesh, as its document: by default pp = 2, tp = 2, one data rank."""
    chunks = 1 if mesh.get("pp", 2) > 2 else 2
    sizes = ("sizes.batch=8", "sizes.seq=64", f"pipeline.chunks={chunks}")
    sets = (*sizes, *(f"mesh.{axis}={size}" for axis, size in mesh.items()))
    if "dp" in mesh:
        sets = (*sets, 'place.batch="dp"')
    ranks = mesh.get("pp", 2) * mesh.get("tp", 2) * mesh.get("dp", 1)
    return to_data(compile(Request.of(EXAMPLE, sets=(*sets, f"launch.ranks={ranks}"))))


def train(ranks: RankPool, data: dict[str, Any], count: int, folder: Path, stop: int = STEPS) -> Logged:
    """What every rank of the pipeline logged, which has to be the same."""
    target = "meshlang.testing.trained:rank_run"
    logged = ranks.run(target, data, free_port(), str(folder), stop, STEPS, ranks=count)
    assert all(each == logged[0] for each in logged)
    return logged[0]


@pytest.fixture(scope="module")
def alone(ranks: RankPool, tmp_path_factory: pytest.TempPathFactory) -> Logged:
    """One rank, no pipeline."""
    return train(ranks, plan(pp=1, tp=1), 1, tmp_path_factory.mktemp("alone"))


def close(found: Logged, wanted: Logged) -> None:
    """Losses in all printed digits, tokens, and norms of gradients, which count each parameter once."""
    for step, (loss, tokens, norm) in found.items():
        assert loss == pytest.approx(wanted[step][0], abs=5e-6)
        assert tokens == wanted[step][1]
        assert norm == pytest.approx(wanted[step][2], rel=1e-4)


@pytest.mark.parametrize("mesh", [{"pp": 2, "tp": 2}, {"pp": 4, "tp": 1}], ids=str)
def test_losses_and_norms_are_those_of_one_rank(
    mesh: dict[str, int], alone: Logged, ranks: RankPool, tmp_path: Path
) -> None:
    """Four steps of the example log what one rank logs, on every rank."""
    found = train(ranks, plan(**mesh), 4, tmp_path)
    assert sorted(found) == [1, 2, 3, 4]
    close(found, alone)


def test_a_run_goes_on_over_data_ranks(alone: Logged, ranks: RankPool, tmp_path: Path) -> None:
    """Two steps in opposing pipelines, two over plain data ranks, and none of the losses shows it."""
    begun = train(ranks, plan(), 4, tmp_path, 2)
    resumed = train(ranks, plan(pp=1, tp=1, dp=2), 2, tmp_path)
    assert (sorted(begun), sorted(resumed)) == ([1, 2], [3, 4])
    close(begun | resumed, alone)


def test_loading_fills_both_replicas(alone: Logged, ranks: RankPool, tmp_path: Path) -> None:
    """Two steps on one rank, two in opposing pipelines: each copy of a stage begins with what was saved."""
    begun = train(ranks, plan(pp=1, tp=1), 1, tmp_path, 2)
    resumed = train(ranks, plan(), 4, tmp_path)
    assert (sorted(begun), sorted(resumed)) == ([1, 2], [3, 4])
    close(begun | resumed, alone)
