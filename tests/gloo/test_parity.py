"""One training step on many ranks is that of one rank: loss, gradients, placements, collectives."""

from dataclasses import replace

import pytest
from meshes import CASES, CONTEXT_CASES, plan_of
from references import References

from meshlang.plan.ir import Plan
from meshlang.testing.parity import Report, differences
from meshlang.testing.ranks import RankPool

RECIPES = {
    "llama/tiny": "meshlang_models.llama.config_registry:tiny",
    "llama3/debugmodel": "meshlang_models.llama3.config_registry:debugmodel",
}
EXACT, CLOSE = 1e-12, 5e-6
BOUNDS = {"float64": EXACT, "float32": CLOSE}

TITAN = [
    *(("llama/tiny", name, "float64") for name in CASES),
    *(("llama/tiny", name, "float32") for name in ("fsdp 4", "tp 2", "hsdp 2x2, tp 2, sequence")),
    *(("llama3/debugmodel", name, "float64") for name in ("hsdp 2x2", "tp 2", "fsdp 2, tp 2, sequence")),
    *(("llama3/debugmodel", name, "float32") for name in ("ddp 2", "fsdp 4, tp 2, sequence")),
]
PLAIN = [
    *((name, "float64") for name in (*CASES, *CONTEXT_CASES)),
    *((name, "float32") for name in ("fsdp 4", "tp 2", "hsdp 2x2, tp 2, sequence")),
]


def as_one_rank(plan: Plan, reports: list[Report], bound: float) -> None:
    """Every rank found what one rank finds, and did what the plan says."""
    for report in reports:
        assert report.misplaced == ()
        assert differences(plan, report.counts) == []
        assert report.worst <= bound


@pytest.mark.parametrize(("model", "name", "dtype"), TITAN)
def test_titan_step_is_that_of_one_rank(
    model: str, name: str, dtype: str, ranks: RankPool, references: References
) -> None:
    """torchtitan's model under a plan has the loss and gradients of one rank, and only planned collectives."""
    plan = plan_of(CASES[name], model, dtype)
    path = references.path("meshlang.testing.parity:rank_titan_reference", plan, RECIPES[model])
    reports = ranks.run("meshlang.testing.parity:rank_titan_step", RECIPES[model], plan, path, {}, ranks=plan.ranks)
    as_one_rank(plan, reports, BOUNDS[dtype])


@pytest.mark.parametrize("name", ["fsdp 2, cp 2 whole", "fsdp 2, cp 2, tp 2, sequence"])
def test_titan_step_over_context_is_that_of_one_rank(name: str, ranks: RankPool, references: References) -> None:
    """With keys and values gathered over cp, torchtitan's model still has one rank's loss and gradients."""
    recipe = RECIPES["llama/tiny"]
    plan = plan_of(replace(CONTEXT_CASES[name], seq=512, batch=2), "llama/tiny", "float64")
    path = references.path("meshlang.testing.parity:rank_titan_reference", plan, recipe)
    reports = ranks.run("meshlang.testing.parity:rank_titan_step", recipe, plan, path, {}, ranks=plan.ranks)
    as_one_rank(plan, reports, EXACT)


@pytest.mark.parametrize(("name", "dtype"), PLAIN)
def test_plain_step_is_that_of_one_rank(name: str, dtype: str, ranks: RankPool, references: References) -> None:
    """A plain torch model under a plan has the loss and gradients of one rank, and only planned collectives."""
    plan = plan_of({**CASES, **CONTEXT_CASES}[name], "./decoder.card.toml#small", dtype)
    path = references.path("plain_decoder:rank_reference", plan)
    as_one_rank(plan, ranks.run("plain_decoder:rank_step", plan, path, ranks=plan.ranks), BOUNDS[dtype])
