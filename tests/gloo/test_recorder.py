"""The recorder of collectives: each way to ask for one, with its axis, its pass and its bytes."""

from meshlang.testing.ranks import RankPool

WHOLE = 4 * 4 * 4


def test_every_way_to_communicate_is_recorded(ranks: RankPool) -> None:
    """In-place, functional, coalesced, implied by DTensor, of a backward; never a group of one rank."""
    found = ranks.run("rank_functions:issue_all", ranks=4)
    assert all(calls == found[0] for calls in found)
    assert found[0] == [
        ("all_reduce", "two", "forward", WHOLE),
        ("all_reduce", "two+three", "forward", WHOLE),
        ("all_reduce", "three", "forward", WHOLE),
        ("all_reduce", "two", "forward", WHOLE),
        ("all_reduce", "two", "forward", WHOLE // 2),
        ("all_gather", "two", "forward", 2 * WHOLE),
        ("all_gather", "three", "forward", 2 * WHOLE),
        ("reduce_scatter", "three", "forward", WHOLE),
        ("all_to_all", "two", "forward", WHOLE),
        ("all_gather", "two", "forward", WHOLE),
        ("all_gather", "two", "forward", WHOLE),
        ("reduce_scatter", "two", "backward", WHOLE),
    ]
