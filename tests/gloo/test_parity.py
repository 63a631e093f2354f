"""One training step on many ranks is that of one rank: loss, gradients, placements, collectives."""

from dataclasses import replace

import pytest
from meshes import CASES, CONTEXT_CASES, Case, plan_of
from references import References
from rows import BOUNDS, rows

from meshlang.plan.ir import Plan
from meshlang.testing.parity import Report, differences
from meshlang.testing.ranks import RankPool

RECIPES = {
    "llama/tiny": "meshlang_models.llama.config_registry:tiny",
    "llama3/debugmodel": "meshlang_models.llama3.config_registry:debugmodel",
    "qwen3/debugmodel": "meshlang_models.qwen3.config_registry:debugmodel",
}

#: Meshes on which the larger model of the language's other card is held too.
LARGER = ("ddp 2", "hsdp 2x2", "tp 2", "fsdp 2, tp 2, sequence", "fsdp 4, tp 2, sequence")

TITAN = {
    f"{model}, {name}": (model, CASES[name])
    for model, names in {"llama/tiny": CASES, "llama3/debugmodel": LARGER}.items()
    for name in names
}
#: Norms over heads and a tied head.
QWEN3 = {
    f"qwen3/debugmodel, {name}": ("qwen3/debugmodel", replace(CASES[name], batch=4, seq=32))
    for name in ("fsdp 2", "tp 2", "tp 2, sequence", "fsdp 2, tp 2", "fsdp 2, tp 2, sequence")
}
QWEN3_SAMPLE = {f"qwen3/debugmodel, {name}, float64" for name in ("fsdp 2", "tp 2", "fsdp 2, tp 2, sequence")}
CONTEXT = {
    f"llama/tiny, {name}": ("llama/tiny", replace(CONTEXT_CASES[name], seq=512, batch=2))
    for name in ("fsdp 2, cp 2 whole", "fsdp 2, cp 2, tp 2, sequence")
}
PLAIN = {f"decoder, {name}": ("./decoder.card.toml#small", case) for name, case in {**CASES, **CONTEXT_CASES}.items()}

SAMPLE = {
    *(f"llama/tiny, {name}, float64" for name in ("ddp 2", "fsdp 3", "hsdp 2x2", "tp 2", "tp 4, sequence", "one rank")),
    "llama/tiny, hsdp 2x2, tp 2, sequence, float32",
    "llama3/debugmodel, fsdp 2, tp 2, sequence, float64",
    "llama3/debugmodel, ddp 2, float32",
}
CONTEXT_SAMPLE = {"llama/tiny, fsdp 2, cp 2, tp 2, sequence, float64"}
PLAIN_SAMPLE = {
    *(f"decoder, {name}, float64" for name in ("ddp 2", "fsdp 3", "fsdp 2, tp 2, sequence", "fsdp 2, cp 2")),
    "decoder, hsdp 2x2, tp 2, sequence, float32",
}


def as_one_rank(plan: Plan, reports: list[Report], bound: float) -> None:
    """Every rank found what one rank finds, and did what the plan says."""
    for report in reports:
        assert report.misplaced == ()
        assert differences(plan, report.counts) == []
        assert report.worst <= bound


@pytest.mark.parametrize(
    ("model", "case", "dtype"),
    [*rows(TITAN, SAMPLE), *rows(QWEN3, QWEN3_SAMPLE), *rows(CONTEXT, CONTEXT_SAMPLE)],
)
def test_titan_step_is_that_of_one_rank(
    model: str, case: Case, dtype: str, ranks: RankPool, references: References
) -> None:
    """torchtitan's model under a plan has the loss and gradients of one rank, and only planned collectives."""
    plan = plan_of(case, model, dtype)
    path = references.path("meshlang.testing.parity:rank_titan_reference", plan, RECIPES[model])
    reports = ranks.run("meshlang.testing.parity:rank_titan_step", RECIPES[model], plan, path, {}, ranks=plan.ranks)
    as_one_rank(plan, reports, BOUNDS[dtype])


@pytest.mark.parametrize(("model", "case", "dtype"), rows(PLAIN, PLAIN_SAMPLE))
def test_plain_step_is_that_of_one_rank(
    model: str, case: Case, dtype: str, ranks: RankPool, references: References
) -> None:
    """A plain torch model under a plan has the loss and gradients of one rank, and only planned collectives."""
    plan = plan_of(case, model, dtype)
    path = references.path("plain_decoder:rank_reference", plan)
    as_one_rank(plan, ranks.run("plain_decoder:rank_step", plan, path, ranks=plan.ranks), BOUNDS[dtype])
