"""Specs off the beaten track, and plans that were made wrong."""

from dataclasses import replace

import pytest
from meshes import CASES, plan_of, with_ties
from references import References

from meshlang.plan.ir import Plan
from meshlang.testing.parity import Report, differences
from meshlang.testing.ranks import RankError, RankPool

RECIPE = "meshlang_models.llama.config_registry:tiny"
WHOLE_HEADS = {"heads": '"whole"', "kv_heads": '"whole"', "why": '"a test"'}
WHOLE_TABLE = {"vocab": '"whole"', "why": '"a test"'}
CUT_COLUMNS = WHOLE_TABLE | {"embed": '"tp"'}

ODD = {
    "one attention whole": replace(CASES["tp 2"], at={"layers.0.attention": WHOLE_HEADS}),
    "one attention whole, sequence": replace(CASES["fsdp 2, tp 2, sequence"], at={"layers.0.attention": WHOLE_HEADS}),
    "table whole": replace(CASES["tp 2"], at={"tok_embeddings": WHOLE_TABLE}),
    "table whole, sequence": replace(CASES["tp 2, sequence"], at={"tok_embeddings": WHOLE_TABLE}),
    "table cut by columns": replace(CASES["tp 2"], at={"tok_embeddings": CUT_COLUMNS}),
    "weights kept": replace(CASES["fsdp 2"], extra={"after_forward": '"keep"'}),
    "weights freed": replace(CASES["fsdp 2"], extra={"after_forward": '"free"'}),
}


def reports_of(plan: Plan, ranks: RankPool, references: References, **options: bool) -> list[Report]:
    """One step of the small Llama under a plan, on each rank."""
    path = references.path("meshlang.testing.parity:rank_titan_reference", plan, RECIPE)
    return ranks.run("meshlang.testing.parity:rank_titan_step", RECIPE, plan, path, options, ranks=plan.ranks)


@pytest.mark.parametrize("name", ODD)
def test_exception_is_that_of_one_rank(name: str, ranks: RankPool, references: References) -> None:
    """A module that differs from the others changes collectives as planned, and no value."""
    plan = plan_of(ODD[name], "llama/tiny", "float64")
    for report in reports_of(plan, ranks, references):
        assert report.misplaced == ()
        assert differences(plan, report.counts) == []
        assert report.worst <= 1e-12


@pytest.mark.parametrize("name", ["tp 2", "fsdp 2, tp 2, sequence"])
def test_types_of_a_plan_are_accepted(name: str, ranks: RankPool, references: References) -> None:
    """spmd_types finds every value of a step to be what the plan says it is."""
    plan = plan_of(CASES[name], "llama/tiny", "float64")
    assert all(report.worst <= 1e-12 for report in reports_of(plan, ranks, references, typecheck=True))


@pytest.mark.parametrize("dtype", ["bfloat16"])
def test_mixed_precision_has_the_planned_bytes(dtype: str, ranks: RankPool, references: References) -> None:
    """Weights and activations travel in the compute type, gradients of units in the reduce type."""
    plan = plan_of(CASES["fsdp 2, tp 2, sequence"], "llama/tiny", "float32", compute=dtype)
    for report in reports_of(plan, ranks, references):
        assert differences(plan, report.counts) == []


def test_recomputation_that_is_not_planned_is_refused(ranks: RankPool) -> None:
    """A run does not recompute behind the back of its plan: what runs again would send again."""
    plan = plan_of(CASES["fsdp 2"], "llama/tiny", "float64")
    with pytest.raises(RankError, match="activation_checkpoint is selective, and the plan makes it none"):
        ranks.run("rank_functions:selective", RECIPE, plan, ranks=2)


def unsummed(plan: Plan) -> Plan:
    """The plan with norm weights whose gradient is taken for whole over tp."""
    tensors = (replace(t, grad=tuple(a for a in t.grad if a != "tp")) for t in plan.tensors)
    return replace(plan, tensors=tuple(tensors))


def test_missing_sum_of_a_weight_shows(ranks: RankPool, references: References) -> None:
    """Without the sum over tp, a norm's weight has a wrong gradient, and only there; the rest is right."""
    plan = unsummed(plan_of(CASES["tp 2, sequence"], "llama/tiny", "float64"))
    for report in reports_of(plan, ranks, references):
        wrong = {name for name, error in report.gradients.items() if error > 1e-12}
        assert wrong == {name for name in report.gradients if "norm" in name}


def test_missing_sum_of_a_norm_over_heads_shows(ranks: RankPool, references: References) -> None:
    """tp cuts the heads that share qwen3's norms of queries and keys: without the sum only these are wrong."""
    recipe = "meshlang_models.qwen3.config_registry:debugmodel"
    plan = unsummed(plan_of(replace(CASES["tp 2"], batch=4, seq=32), "qwen3/debugmodel", "float64"))
    path = references.path("meshlang.testing.parity:rank_titan_reference", plan, recipe)
    for report in ranks.run("meshlang.testing.parity:rank_titan_step", recipe, plan, path, {}, ranks=2):
        wrong = {name for name, error in report.gradients.items() if error > 1e-12}
        assert wrong == {
            f"layers.{layer}.attention.{name}.weight" for layer in range(8) for name in ("q_norm", "k_norm")
        }
        assert report.loss <= 1e-12


def test_missing_sum_of_a_weight_is_a_type_error(ranks: RankPool, references: References) -> None:
    """spmd_types refuses a weight whose gradient is a sum and is not typed so."""
    plan = unsummed(plan_of(CASES["tp 2, sequence"], "llama/tiny", "float64"))
    with pytest.raises(RankError, match="SpmdTypeError"):
        reports_of(plan, ranks, references, typecheck=True)


def test_missing_sum_of_an_activation_is_an_error(ranks: RankPool, references: References) -> None:
    """The plain lowering refuses a gradient that is a sum where the plan says it is whole."""
    plan = plan_of(CASES["tp 2"], "./decoder.card.toml#small", "float64")
    edges = (replace(e, dst=replace(e.dst, grad=())) if e.port == "input.x" else e for e in plan.edges)
    path = references.path("plain_decoder:rank_reference", plan)
    with pytest.raises(RankError, match=r"the gradient of layers.1.feed_forward input.x comes as \(Partial"):
        ranks.run("plain_decoder:rank_step", replace(plan, edges=tuple(edges)), path, ranks=2)


def test_run_must_have_the_plan_s_degrees(ranks: RankPool, references: References) -> None:
    """A plan is not laid over a mesh of other degrees."""
    plan = plan_of(CASES["tp 2"], "llama/tiny", "float32")
    with pytest.raises(RankError, match="tp is 1 in the run and 2 in the plan"):
        ranks.run("rank_functions:other_degrees", RECIPE, plan, ranks=2)


@pytest.fixture(scope="session")
def tied_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """llama3's card with one more flavor: its debug model, embedding and head one tensor."""
    return with_ties(tmp_path_factory.mktemp("tied"), "llama3", tied=True)


def test_tied_weights_stay_tied(tied_model: str, ranks: RankPool, references: References) -> None:
    """A tensor of two names is one parameter: stored once, gathered once, with the sum of both gradients."""
    plan = plan_of(CASES["fsdp 2, tp 2, sequence"], tied_model, "float64")
    recipe = "rank_functions:tied"
    path = references.path("meshlang.testing.parity:rank_titan_reference", plan, recipe)
    for report in ranks.run("meshlang.testing.parity:rank_titan_step", recipe, plan, path, {}, ranks=4):
        assert "lm_head.weight" not in report.gradients
        assert report.misplaced == ()
        assert differences(plan, report.counts) == []
        assert report.worst <= 1e-12
