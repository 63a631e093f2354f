"""One step through a pipeline is that of one rank, under each of torch's schedules and beside other parallelism."""

import pytest
from pipeline_cases import CONTEXT, DEEP, LLAMA3, LONGER, PAIRS, SINGLE, Pipe, plan_of
from references import References

from meshlang.testing.parity import differences
from meshlang.testing.ranks import RankPool

RECIPES = {
    "llama/tiny": "meshlang_models.llama.config_registry:tiny",
    "llama/debug": "meshlang_models.llama.config_registry:debug",
    "llama3/debugmodel": "meshlang_models.llama3.config_registry:debugmodel",
}
BOUNDS = {"float64": 1e-12, "float32": 5e-6}

CASES = [
    *(("llama/tiny", name, pipe, "float64") for name, pipe in {**SINGLE, **PAIRS, **DEEP, **CONTEXT}.items()),
    *(("llama/tiny", name, DEEP[name], "float32") for name in ("1f1b, fsdp, tp", "zbv, fsdp, tp", "uneven split")),
    *(("llama/debug", name, pipe, "float64") for name, pipe in LONGER.items()),
    *(("llama3/debugmodel", name, pipe, "float64") for name, pipe in LLAMA3.items()),
    ("llama3/debugmodel", "1f1b, ddp", LLAMA3["1f1b, ddp"], "float32"),
]


@pytest.mark.parametrize(
    ("model", "pipe", "dtype"), [pytest.param(m, p, d, id=f"{m}-{name}-{d}") for m, name, p, d in CASES]
)
def test_pipelined_step_is_that_of_one_rank(
    model: str, pipe: Pipe, dtype: str, ranks: RankPool, references: References
) -> None:
    """Each rank has its stages' gradients, the loss is whole, and each stage issues what the plan says of it."""
    plan = plan_of(pipe, model, dtype)
    path = references.path("meshlang.testing.parity:rank_titan_reference", plan, RECIPES[model])
    target = "meshlang.testing.pipeline:rank_pipeline_step"
    reports = ranks.run(target, RECIPES[model], plan, path, {}, ranks=plan.ranks)
    for rank, report in enumerate(reports):
        assert report.misplaced == ()
        assert differences(plan, report.counts, rank) == []
        assert report.worst <= BOUNDS[dtype]
