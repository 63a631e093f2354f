"""The recipes train under torchtitan's own Trainer."""

from pathlib import Path

import pytest

from meshlang.testing.ranks import RankPool


@pytest.mark.gloo
def test_tiny_trains_under_the_real_trainer(tmp_path: Path, pool: RankPool) -> None:
    """Three steps of the unchanged torchtitan Trainer on one rank lower the loss each time."""
    recipe = "meshlang_models.llama:tiny"
    (losses,) = pool.run("trained_alone:rank_losses", recipe, str(tmp_path), 3, {}, ranks=1)
    assert len(losses) == 3
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > 5.5
