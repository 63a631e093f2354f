"""The pool of ranks: answers in order, failures that name the rank, and no call that spoils the next."""

import pytest

from meshlang.testing.ranks import RankError, RankPool


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_answers_come_in_rank_order(count: int, ranks: RankPool) -> None:
    """Each call has a process group of the ranks it asks for."""
    wanted = sum(range(count)) + 5 * count
    assert ranks.run("rank_functions:total", 5, ranks=count) == [[i, count, wanted] for i in range(count)]


def test_failure_names_its_rank(ranks: RankPool) -> None:
    """A rank's exception comes back with its traceback, though the others fail of it too."""
    with pytest.raises(RankError, match=r"(?s)on rank 1 of 3.*rank_functions.py.*rank 1 has had enough"):
        ranks.run("rank_functions:fail_on", 1, ranks=3)


def test_death_is_a_failure(ranks: RankPool) -> None:
    """A rank whose process ends is reported, and the pool goes on."""
    with pytest.raises(RankError, match="on rank 1 of 2: its process died"):
        ranks.run("rank_functions:die_on", 1, ranks=2)
    assert len(ranks.run("rank_functions:total", 0, ranks=2)) == 2


def test_silence_is_a_failure(ranks: RankPool) -> None:
    """A rank that gives no answer in time is ended, and the pool goes on."""
    with pytest.raises(RankError, match=r"no answer within 3 s"):
        ranks.run("rank_functions:sleep_on", 0, ranks=1, timeout=3)
    assert len(ranks.run("rank_functions:total", 0, ranks=1)) == 1


def test_calls_leave_nothing_behind(ranks: RankPool) -> None:
    """What one call leaves in a module, the next does not see; each rank computes on one thread."""
    first = ranks.run("rank_functions:state", ranks=2)
    assert first == ranks.run("rank_functions:state", ranks=2) == [(1, 0), (1, 0)]


def test_more_ranks_than_the_pool_is_an_error(ranks: RankPool) -> None:
    """A pool says how many ranks it has."""
    with pytest.raises(ValueError, match="9 ranks asked of a pool of 8"):
        ranks.run("rank_functions:total", 0, ranks=9)
