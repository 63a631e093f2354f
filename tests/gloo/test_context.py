"""A sequence cut over ranks: each strategy's loss, gradients, collectives and memory, with packed documents."""

from typing import Any

import pytest
from context_cases import Case, plan_of
from context_ranks import BATCH, HEAD_DIM, HEADS, KV_HEADS
from references import References
from rows import BOUNDS, rows

from meshlang.testing.parity import differences
from meshlang.testing.ranks import RankPool, each_rank

RECIPES = {
    "llama/tiny": "meshlang_models.llama.config_registry:tiny",
    "llama3/debugmodel": "meshlang_models.llama3.config_registry:debugmodel",
    "qwen3/debugmodel": "meshlang_models.qwen3.config_registry:debugmodel",
}
STRATEGIES = ("all_gather_attention", "ring_attention", "ulysses")

#: "MODEL, CASE" -> (model, a case of any strategy)
EACH = {
    "llama/tiny, cp 2": ("llama/tiny", {"mesh": {"cp": 2}, "balance": "none"}),
    "llama/tiny, cp 2, not stored": ("llama/tiny", {"mesh": {"cp": 2}, "store": ()}),
    "llama/tiny, cp 4": ("llama/tiny", {"mesh": {"cp": 4}}),
    "llama/tiny, cp 4, 120 tokens": ("llama/tiny", {"mesh": {"cp": 4}, "seq": 120, "batch": 2}),
    "llama/tiny, cp 2, tp 2": ("llama/tiny", {"mesh": {"cp": 2, "tp": 2}}),
    "llama/tiny, cp 2, tp 2, sequence": ("llama/tiny", {"mesh": {"cp": 2, "tp": 2}, "sequence": True}),
    "llama/tiny, ddp 2, cp 2": ("llama/tiny", {"mesh": {"dp": 2, "cp": 2}, "store": ()}),
    "llama/tiny, ddp 2, cp 2 stored": ("llama/tiny", {"mesh": {"dp": 2, "cp": 2}}),
    "llama/tiny, fsdp 2, cp 2": ("llama/tiny", {"mesh": {"dp": 2, "cp": 2}, "store": ("dp", "cp")}),
    "llama/tiny, hsdp 2x2, cp 2": (
        "llama/tiny",
        {"mesh": {"copies": 2, "dp": 2, "cp": 2}, "store": ("dp", "cp"), "batch": 8},
    ),
    **{
        f"llama/tiny, {data} 2, cp 2, {words}": (
            "llama/tiny",
            {"mesh": {"dp": 2, "cp": 2, "tp": 2}, "store": store, "sequence": words.endswith("sequence")},
        )
        for data, store in {"ddp": (), "fsdp": ("dp", "cp")}.items()
        for words in ("tp 2", "tp 2, sequence")
    },
    "llama3/debugmodel, cp 4": ("llama3/debugmodel", {"mesh": {"cp": 4}, "batch": 2}),
    "llama3/debugmodel, cp 4, tp 2, sequence": (
        "llama3/debugmodel",
        {"mesh": {"cp": 4, "tp": 2}, "batch": 2, "sequence": True},
    ),
}

#: Of each strategy.
SAMPLE = {
    "llama/tiny, cp 2, not stored, float64",
    "llama/tiny, cp 2, tp 2, sequence, float64",
    "llama/tiny, fsdp 2, cp 2, float32",
}

#: Rings of more ranks, and of an odd number; queries and keys that are normed before the ring.
RINGS = {
    f"llama/tiny, ring of {size}, {balance}, {seq} tokens": (
        "llama/tiny",
        {"mesh": {"cp": size}, "balance": balance, "seq": seq, "batch": 2},
    )
    for size, balance, seq in ((8, "head_tail", 64), (3, "none", 66), (3, "head_tail", 66))
}
RINGS["qwen3/debugmodel, cp 2, tp 2"] = ("qwen3/debugmodel", {"mesh": {"cp": 2, "tp": 2}, "seq": 32, "batch": 2})
RING_SAMPLE = {"llama/tiny, ring of 3, head_tail, 66 tokens, float64", "qwen3/debugmodel, cp 2, tp 2, float64"}


def case(strategy: str, options: dict) -> Case:
    """A case of one strategy; Ulysses has nothing to balance."""
    return Case(strategy=strategy, **options | ({"balance": None} if strategy == "ulysses" else {}))


def held(made: Case, model: str, dtype: str, ranks: RankPool, references: References) -> None:
    """One step of the case is that of one rank."""
    plan = plan_of(made, model, dtype)
    path = references.path("context_cases:rank_reference", plan, RECIPES[model])
    for report in ranks.run("context_cases:rank_step", RECIPES[model], plan, path, ranks=plan.ranks):
        assert report.misplaced == ()
        assert differences(plan, report.counts) == []
        assert report.worst <= BOUNDS[dtype]


@pytest.mark.parametrize(("model", "options", "dtype"), rows(EACH, SAMPLE))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_step_is_that_of_one_rank(
    strategy: str, model: str, options: dict[str, Any], dtype: str, ranks: RankPool, references: References
) -> None:
    """Loss and every gradient are those of one rank, weights lie as planned, and only planned calls are made."""
    held(case(strategy, options), model, dtype, ranks, references)


@pytest.mark.parametrize(("model", "options", "dtype"), rows(RINGS, RING_SAMPLE))
def test_long_and_odd_rings_are_exact(
    model: str, options: dict[str, Any], dtype: str, ranks: RankPool, references: References
) -> None:
    """A ring of eight ranks, of three, or of normed heads has one rank's loss and gradients."""
    held(Case(strategy="ring_attention", **options), model, dtype, ranks, references)


@pytest.mark.parametrize("balance", ["head_tail", "none"])
def test_batches_are_those_of_torchtitan(balance: str, ranks: RankPool) -> None:
    """Where torchtitan can cut a batch, a plan cuts the same: tokens, labels, positions and every bit of the mask."""
    made = Case(strategy="all_gather_attention", mesh={"cp": 2}, balance=balance, seq=256, batch=4)
    plan = plan_of(made, "llama/tiny", "float32")
    answers = ranks.run("context_ranks:rank_batches_agree", RECIPES["llama/tiny"], plan, ranks=2)
    assert each_rank(answers)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_types_are_those_of_the_plan(strategy: str, ranks: RankPool) -> None:
    """spmd_types follows every value through a model under cp x tp with a cut sequence, and finds no fault."""
    options = {"mesh": {"cp": 2, "tp": 2}, "sequence": True}
    plan = plan_of(case(strategy, options), "llama/tiny", "float32")
    shapes = ranks.run("context_ranks:rank_typechecked_forward", RECIPES["llama/tiny"], plan, ranks=4)
    assert each_rank(shapes) == (4, 32, 132)


def test_memory_of_a_ring_does_not_grow(ranks: RankPool) -> None:
    """With as many tokens a rank, rings of four ranks and more keep equal bytes alive, and no tensor of all keys."""
    tokens, part = 64, BATCH * 64 * KV_HEADS * HEAD_DIM * 4
    found = {size: each_rank(ranks.run("context_ranks:rank_ring_memory", tokens, ranks=size)) for size in (4, 6, 8)}
    assert len(set(found.values())) == 1, found
    _, largest = found[8]
    scores = BATCH * HEADS * tokens * tokens * 4
    assert largest == max(scores, 2 * part)
    assert largest < 8 * part


@pytest.mark.parametrize(("size", "balance"), [(2, "none"), (4, "head_tail")])
def test_gradients_of_a_ring_are_slopes(size: int, balance: str, ranks: RankPool) -> None:
    """The ring's backward is the derivative of its forward: equal to finite differences to nine digits."""
    assert max(ranks.run("context_ranks:rank_ring_adjoint", 6, balance, ranks=size)) < 1e-8


def test_queries_that_see_nothing_give_zero(ranks: RankPool) -> None:
    """A query whose mask is empty gives zeros, and finite gradients."""
    assert each_rank(ranks.run("context_ranks:rank_blind_queries", ranks=2))


def test_a_ring_refuses_what_it_cannot_say(ranks: RankPool) -> None:
    """Attention without a block mask, with a mask for each head, or with a score_mod is refused by name."""
    assert each_rank(ranks.run("context_ranks:rank_refusals", ranks=2)) == [
        "ring attention needs a block mask, and gets NoneType",
        "ring attention has one mask for all heads",
        "ring attention has no score_mod",
    ]
