"""Who has which blocks and clean tokens: everything once, evenly, and as torch deals out head and tail."""

from collections.abc import Sequence
from dataclasses import replace
from time import process_time

import pytest
from block_bounds import Shape, pairs_bound, rows_bound
from meshlang_strategies.block_layout import Streams, block_streams, combined_streams, deal, length

from meshlang.plan.blocks import Blocks, from_data, joined, to_data

#: (blocks, ranks, ranks of a ring)
SHAPES = [(16, 4, 4), (20, 4, 4), (10, 4, 4), (14, 4, 2), (9, 4, 1), (4, 4, 4), (41, 8, 4), (7, 1, 1), (45, 8, 8)]


def streams(blocks: int, ranks: int, context: int, size: int = 16, window: int | None = None) -> Streams:
    """Of sequences of so many blocks of `size` tokens."""
    return block_streams(blocks * size, size, ranks, context, window, 1)


def tokens(runs: tuple[tuple[int, int], ...]) -> list[int]:
    """Every token of some runs."""
    return [token for start, stop in runs for token in range(start, stop)]


@pytest.mark.parametrize(("blocks", "ranks", "context"), SHAPES)
def test_each_token_has_one_owner(blocks: int, ranks: int, context: int) -> None:
    """A corrupted token is on one rank, a clean one on one rank of each ring."""
    made = streams(blocks, ranks, context)
    assert sorted(t for runs in made.corrupted for t in tokens(runs)) == list(range(made.tokens))
    for first in range(0, ranks, context):
        clean = [t for rank in made.ring_of(first) for t in tokens(made.clean[rank])]
        assert sorted(clean) == list(range(made.tokens))


@pytest.mark.parametrize(("blocks", "ranks", "context"), SHAPES)
def test_blocks_are_dealt_evenly(blocks: int, ranks: int, context: int) -> None:
    """Ranks have equally many blocks, or one more."""
    counts = [length(runs) for runs in deal(blocks, ranks, context)]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_head_and_tail_are_torchs(ranks: int) -> None:
    """Where blocks divide by twice the ranks, tokens are in the order of torch's head-tail balancer."""
    from torch.distributed.tensor.experimental._context_parallel._load_balancer import _HeadTailLoadBalancer

    made = streams(4 * ranks, ranks, ranks, size=4)
    theirs = _HeadTailLoadBalancer(made.tokens, ranks, "cpu")._generate_indices(restore=False)
    order = theirs.flatten().tolist()
    assert [t for runs in made.corrupted for t in tokens(runs)] == order
    assert [t for runs in made.clean for t in tokens(runs)] == order


@pytest.mark.parametrize(("ranks", "context"), [(2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (8, 1), (8, 2), (8, 8)])
@pytest.mark.parametrize("views", [1, 2])
def test_pairs_and_rows_are_even(ranks: int, context: int, views: int) -> None:
    """Equal where blocks divide by twice the ranks; else within 2 percent of the mean, or as near as blocks can be."""
    for size in (1, 2, 4, 16, 32):
        for blocks in range(5 * ranks, 8 * ranks + 3):
            shape = Shape(blocks=blocks, size=size, ranks=ranks, context=context, views=views, window=None)
            found = block_streams(shape.tokens, size, ranks, context, None, views)
            pairs, rows = found.pairs(views, 1), found.rows(views, 1)
            assert sum(pairs) == size * size * blocks * (blocks + 1) // 2 * (views + shape.rings)
            if blocks % (2 * ranks) == 0:
                assert len({*pairs}) == len({*rows}) == 1
            assert off_mean(pairs) <= 0.02, (shape, pairs)
            assert off_mean(rows) <= max(0.02, rows_bound(shape)), (shape, rows)


@pytest.mark.parametrize(("ranks", "context"), [(2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (8, 1), (8, 8)])
@pytest.mark.parametrize("views", [1, 2])
def test_windows_leave_pairs_even(ranks: int, context: int, views: int) -> None:
    """Where blocks do not divide by twice the ranks: within 2 percent, or a quarter above what whole blocks force.

    A window spares the first tokens, and whoever has the first block cannot make up for that. With blocks of one
    token the search may stop three pairs from the mean.
    """
    for size, window in ((1, 5), (1, 1), (2, 3), (4, 9), (16, 5), (16, 64), (32, 40), (32, 200)):
        for blocks in (5 * ranks + 1, 5 * ranks + 2, 6 * ranks - 1, 7 * ranks - 1, 8 * ranks + 1):
            if blocks % (2 * ranks) == 0:
                continue
            shape = Shape(blocks=blocks, size=size, ranks=ranks, context=context, views=views, window=window)
            found = block_streams(shape.tokens, size, ranks, context, window, views)
            near = max(0.02, pairs_bound(shape) + 0.0025, 3 / shape.mean if size == 1 else 0)
            assert off_mean(found.pairs(views, 1)) <= near, shape
            assert off_mean(found.rows(views, 1)) <= max(0.02, rows_bound(shape)), shape


def off_mean(counts: Sequence[int]) -> float:
    """How far the farthest is from the mean, above or below."""
    mean = sum(counts) / len(counts)
    return max(abs(count - mean) for count in counts) / mean


@pytest.mark.parametrize(("ranks", "context"), [(2, 1), (2, 2), (4, 2), (4, 4), (8, 1), (8, 8)])
@pytest.mark.parametrize("views", [1, 2])
def test_windows_leave_rows_equal(ranks: int, context: int, views: int) -> None:
    """Where blocks divide by twice the ranks: pairs within 2 percent, or a quarter above what whole blocks force."""
    for size, share in ((4, 0.02), (4, 0.3), (16, 0.1), (16, 0.6), (16, 0.95)):
        for blocks in (6 * ranks, 8 * ranks, 64 * ranks):
            window = int(share * blocks * size)
            shape = Shape(blocks=blocks, size=size, ranks=ranks, context=context, views=views, window=window)
            found = block_streams(shape.tokens, size, ranks, context, window, views)
            assert found.off(views) <= max(0.02, pairs_bound(shape) + 0.0025), shape
            assert len({*found.rows(views, 1)}) == 1


def test_a_short_window_keeps_head_and_tail() -> None:
    """Where those leave pairs within 2 percent a window changes no owner: each rank has two neighbours' edges."""
    for views in (1, 2):
        windowed, whole, long = (block_streams(4096, 8, 4, 4, window, views) for window in (40, None, 400))
        assert windowed.off(views) <= 0.02
        assert (windowed.corrupted, windowed.clean) == (whole.corrupted, whole.clean)
        assert replace(whole, window=400).off(views) > 0.1
        assert long.off(views) <= 0.02


def test_few_runs_even_out_many_blocks() -> None:
    """No piece is exchanged where a split of head and tail is enough: a rank's clean tokens are two runs."""
    for blocks in (41, 67, 1001):
        found = block_streams(blocks * 16, 16, 8, 8, None, 2)
        assert found.off(2) <= 0.01
        assert max(map(len, found.clean)) <= 2


@pytest.mark.parametrize("window", [None, 1, 5, 30])
@pytest.mark.parametrize(("blocks", "ranks", "context"), SHAPES)
def test_pairs_are_those_that_are_seen(blocks: int, ranks: int, context: int, window: int | None) -> None:
    """The closed form counts what a walk over queries finds."""
    made = streams(blocks, ranks, context, size=4, window=window)
    for rank, count in enumerate(made.pairs(2, 1)):
        seen = {t: t // 4 * 4 + 4 - max(0, t - (window or made.tokens) + 1) for t in range(made.tokens)}
        corrupted, clean = (sum(seen[t] for t in tokens(runs[rank])) for runs in (made.corrupted, made.clean))
        assert count == 2 * corrupted + clean


@pytest.mark.parametrize("window", [None, 1, 5, 30])
@pytest.mark.parametrize(("blocks", "ranks", "context"), SHAPES)
def test_moves_bring_what_is_needed(blocks: int, ranks: int, context: int, window: int | None) -> None:
    """With what comes to it a rank has exactly the clean tokens that its queries see, and its own."""
    made = streams(blocks, ranks, context, size=4, window=window)
    moves = made.moves()
    for rank in range(ranks):
        have = set(tokens(made.clean[rank]))
        for (source, to), runs in moves.items():
            if to == rank:
                assert source in made.ring_of(rank)
                assert {*tokens(runs)} <= {*tokens(made.clean[source])}
                have |= set(tokens(runs))
        assert have == set(tokens(made.needed(rank)))


@pytest.mark.parametrize(("ranks", "window"), [(2, 3), (4, 9), (8, 16)])
def test_window_needs_the_tokens_of_the_formula(ranks: int, window: int) -> None:
    """2 (W - 1) (2P - 2) / (2P) tokens a rank, on average, while head and tail are even enough."""
    made = streams(64 * ranks, ranks, ranks, size=8, window=window)
    assert sum(map(length, made.moves().values())) * 2 * ranks == 2 * (window - 1) * (2 * ranks - 2) * ranks


def test_combined_sequence_is_head_and_tail() -> None:
    """Of [corrupted ; clean] a rank has a part and its opposite, and all ranks have as many pairs."""
    made = combined_streams(64, 4, 4)
    for rank, (head, tail) in enumerate(zip(made.corrupted, made.clean, strict=True)):
        assert [*tokens(head), *(64 + t for t in tokens(tail))] == [
            *range(16 * rank, 16 * rank + 16),
            *range(16 * (7 - rank), 16 * (7 - rank) + 16),
        ]
    assert len({*made.pairs(1, 1)}) == 1


def test_a_huge_sequence_is_no_work() -> None:
    """Nothing walks over tokens: a sequence of 2 ** 40 of them on 512 ranks, also where a long window is uneven."""
    started = process_time()
    assert block_streams(2**24, 32, 4096, 4096, 2**20, 1).off(1) > 0.02
    assert process_time() - started < 1
    made = block_streams(2**40, 2**20, 512, 512, 4096, 1)
    assert sum(made.pairs(1, 1)) > 2**50
    assert len(made.moves()) == 2 * 511


def test_blocks_are_read_as_written() -> None:
    """The document has block numbers, and gives back the runs."""
    made = streams(10, 4, 4)
    blocks = Blocks(
        axis="block",
        size=4,
        context=4,
        block_size=16,
        sequence=160,
        views=1,
        shared=True,
        owners=deal(10, 4, 4),
        clean=made.clean,
        rows=made.rows(1, 1),
        pairs=made.pairs(1, 1),
        forward=3,
        backward=None,
    )
    assert from_data(to_data(blocks)) == blocks
    assert joined([(0, 2), (2, 3), (5, 5), (6, 8), (7, 9)]) == ((0, 3), (6, 9))
