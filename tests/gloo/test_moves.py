"""Moves of local tensors: right values, and backwards that are the adjoint of the forward."""

import pytest

from meshlang.testing.ranks import RankPool


@pytest.mark.parametrize("count", [2, 3])
def test_moves_give_the_wanted_part(count: int, ranks: RankPool) -> None:
    """Between any two placements, each rank gets what the second says of the same whole."""
    for errors in ranks.run("rank_functions:move_values", ranks=count):
        assert max(errors.values()) < 1e-14, errors


@pytest.mark.parametrize("count", [2, 3])
def test_backward_of_a_move_is_its_adjoint(count: int, ranks: RankPool) -> None:
    """<move(x), g> == <x, back(g)>, with gradients placed as the plan's kinds say."""
    for errors in ranks.run("rank_functions:move_adjoints", ranks=count):
        assert max(errors.values()) < 1e-12, errors


def test_seeded_parts_make_the_seeded_whole(ranks: RankPool) -> None:
    """The part that a rank copies is the one that DTensor would give it."""
    assert max(ranks.run("rank_functions:seeded_parts", ranks=4)) == 0.0
