"""Attention over two streams: each way to share the clean one is dense masked softmax, and sends what is planned."""

import pytest
from block_ranks import HEAD_DIM, KV_HEADS, SEQUENCES, Exchanged
from rows import BOUNDS

from meshlang.testing.ranks import RankPool

#: Ranks, and what runs over them.
CASES = {
    "one rank": (1, {"blocks": 5}),
    "gather": (4, {"blocks": 16}),
    "gather, 10 blocks": (4, {"blocks": 10}),
    "gather, 14 blocks": (4, {"blocks": 14}),
    "gather, 8 ranks": (8, {"blocks": 16}),
    "gather, reference kernel": (2, {"blocks": 6, "kernel": "reference", "documents": True}),
    "ring": (4, {"blocks": 16, "transport": "ring"}),
    "ring, 14 blocks, documents, two views": (
        4,
        {"blocks": 14, "transport": "ring", "documents": True, "views": 2},
    ),
    "two rings of 2": (4, {"blocks": 14, "context": 2}),
    "two rings of 2, streaming": (4, {"blocks": 10, "context": 2, "transport": "ring"}),
    "replicated": (4, {"blocks": 9, "context": 1}),
    "window": (4, {"blocks": 16, "window": 5}),
    "window, 8 ranks": (8, {"blocks": 32, "window": 9}),
    "short window": (4, {"blocks": 64, "window": 5}),
    "short window, 8 ranks": (8, {"blocks": 64, "window": 3}),
    "window, 10 blocks, documents": (4, {"blocks": 10, "window": 9, "documents": True}),
    "window over two heads, rings": (4, {"blocks": 16, "window": 30, "context": 2}),
    "two views, 11 blocks": (4, {"blocks": 11, "views": 2}),
    "documents": (4, {"blocks": 16, "documents": True}),
    "combined": (4, {"blocks": 16, "combined": True}),
    "combined, documents": (4, {"blocks": 12, "combined": True, "documents": True}),
    "no clean queries": (4, {"blocks": 14, "pruned": True}),
    "no clean queries, ring": (2, {"blocks": 6, "pruned": True, "transport": "ring", "views": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_dense_softmax(name: str, ranks: RankPool) -> None:
    """The output and the gradients of queries, keys and values, in float64."""
    size, options = CASES[name]
    for found in ranks.run("block_ranks:rank_compare", Exchanged(**options), ranks=size):
        assert max(found.errors.values()) <= BOUNDS["float64"]


@pytest.mark.parametrize("name", ["gather, 14 blocks", "ring", "window", "documents", "combined"])
def test_rows_are_close_in_float32(name: str, ranks: RankPool) -> None:
    """The same in float32."""
    size, options = CASES[name]
    for found in ranks.run("block_ranks:rank_compare", Exchanged(**options, dtype="float32"), ranks=size):
        assert max(found.errors.values()) <= BOUNDS["float32"]


@pytest.mark.parametrize("name", CASES)
def test_no_corrupted_key_is_sent(name: str, ranks: RankPool) -> None:
    """No number of this rank's corrupted keys and values goes into a collective; of the combined sequence all do."""
    size, options = CASES[name]
    case = Exchanged(**options)
    keys = 2 * SEQUENCES * KV_HEADS * HEAD_DIM * case.tokens // size
    for found in ranks.run("block_ranks:rank_compare", case, ranks=size):
        assert found.leaked == (keys if case.combined else 0)


#: Case -> what a rank receives, in units of (P - 1) / P of all clean keys and values: forward, backward.
RECEIVED = {
    "gather": (1, 1),
    "gather, 8 ranks": (1, 1),
    "ring": (1, 2),
    "replicated": (0, 0),
    "combined": (2, 2),
    "documents": (1, 1),
}


@pytest.mark.parametrize("name", RECEIVED)
def test_bytes_are_those_of_the_formula(name: str, ranks: RankPool) -> None:
    """What was issued is received: (P - 1) / P of S = 2 L H_kv d s b, so many times (csbp: arXiv 2609.19242)."""
    size, options = CASES[name]
    case = Exchanged(**options)
    whole = 2 * case.tokens * KV_HEADS * HEAD_DIM * 8 * SEQUENCES
    for found in ranks.run("block_ranks:rank_compare", case, ranks=size):
        assert received(found.counts, size) == tuple(n * whole * (size - 1) // size for n in RECEIVED[name])


@pytest.mark.parametrize(("name", "window"), [("short window", 5), ("short window, 8 ranks", 3)])
def test_window_sends_the_tokens_of_the_formula(name: str, window: int, ranks: RankPool) -> None:
    """2 (W - 1) (2P - 2) / (2P) tokens of keys and values a rank in each pass, on average."""
    size, options = CASES[name]
    found = ranks.run("block_ranks:rank_compare", Exchanged(**options), ranks=size)
    token = 2 * KV_HEADS * HEAD_DIM * 8 * SEQUENCES
    sent = [received(each.counts, size) for each in found]
    want = 2 * (window - 1) * (2 * size - 2) // 2 * token
    assert [sum(each[index] for each in sent) for index in (0, 1)] == [want, want]


def received(counts: dict, size: int) -> tuple[int, int]:
    """Bytes that come to a rank, forward and backward; of messages those that it sends."""
    totals = {"forward": 0, "backward": 0}
    for (kind, _, pass_, number), calls in counts.items():
        totals[pass_] += calls * (number if kind == "send" else number * (size - 1) // size)
    return totals["forward"], totals["backward"]
