"""Noise: levels, and what decides it."""

import pytest
import torch
from meshlang_models.block_diffusion.corrupt import LOWEST, antithetic_levels, draw, sample_seed


@pytest.mark.parametrize("blocks", [1, 4, 10])
@pytest.mark.parametrize("start", [0.0, 0.3, 0.99])
def test_levels_are_spread_evenly(start: float, blocks: int) -> None:
    """Sorted, the levels of a sample lie 1 / n apart, within LOWEST and 1."""
    levels = antithetic_levels(start, blocks).sort().values
    gaps = levels.diff()
    assert torch.allclose(gaps, torch.full_like(gaps, (1 - LOWEST) / blocks), rtol=1e-12)
    assert levels[0] >= LOWEST
    assert levels[-1] <= 1


def test_levels_of_a_start_of_zero() -> None:
    """Level i of n is i / n, scaled from [0, 1] to [LOWEST, 1]."""
    assert antithetic_levels(0.0, 4).tolist() == [LOWEST + (1 - LOWEST) * i / 4 for i in range(4)]


def test_level_is_one_for_a_block() -> None:
    """All tokens of a block have one level, and blocks have different ones."""
    level = draw(3, 12, 4).level.view(3, 4)
    assert (level == level[:, :1]).all()
    assert len(set(level[:, 0].tolist())) == 3


def test_level_is_the_share_corrupted() -> None:
    """Over many samples, as many tokens of a block are corrupted as its level says."""
    draws = [draw(sample_seed(0, sample), 64, 16) for sample in range(400)]
    share = torch.stack([each.corrupted.double() for each in draws]).mean()
    level = torch.stack([each.level for each in draws]).mean()
    assert abs(float(share - level)) < 0.01
    assert abs(float(level) - 0.5) < 0.01


def test_seed_decides_all() -> None:
    """The same seed gives the same noise, bit for bit, whatever was drawn before."""
    first = draw(7, 32, 8)
    torch.manual_seed(123)
    torch.rand(5)
    again = draw(7, 32, 8)
    assert torch.equal(first.level, again.level)
    assert torch.equal(first.uniform, again.uniform)


def test_samples_have_seeds_of_their_own() -> None:
    """Neighbouring samples and neighbouring base seeds share no seed."""
    seeds = {sample_seed(base, sample) for base in range(20) for sample in range(200)}
    assert len(seeds) == 4000


def test_uneven_blocks_are_refused() -> None:
    """Blocks that do not come out even are an error with both numbers."""
    with pytest.raises(ValueError, match="30 tokens do not divide into blocks of 8"):
        draw(0, 30, 8)
