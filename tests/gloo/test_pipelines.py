"""One step through a pipeline is that of one rank, under each of torch's schedules and beside other parallelism."""

from dataclasses import replace

import pytest
from meshes import with_ties
from pipeline_cases import DEEP, LLAMA3, LONGER, PAIRS, SCHEDULES, SINGLE, TRIPLES, Pipe, plan_of
from references import References
from rows import BOUNDS, rows

from meshlang.diagnostics import SpecError
from meshlang.testing.parity import differences
from meshlang.testing.ranks import RankPool

RECIPES = {
    "llama/tiny": "meshlang_models.llama.config_registry:tiny",
    "llama/debug": "meshlang_models.llama.config_registry:debug",
    "llama3/debugmodel": "meshlang_models.llama3.config_registry:debugmodel",
}
CASES = {
    f"{model}, {name}": (model, pipe)
    for model, pipes in {
        "llama/tiny": {**SINGLE, **PAIRS, **TRIPLES, **DEEP},
        "llama/debug": LONGER,
        "llama3/debugmodel": LLAMA3,
    }.items()
    for name, pipe in pipes.items()
}

SAMPLE = {
    *(f"llama/tiny, {name}, float64" for name in SCHEDULES),
    *(f"llama/tiny, {name}, fsdp, float64" for name in ("1f1b", "interleaved_1f1b", "dualpipev")),
    "llama/tiny, interleaved_zero_bubble, hsdp, float64",
    "llama/tiny, gpipe, ring, float64",
    "llama/tiny, 1f1b, fsdp, tp, sequence, float32",
    "llama/tiny, zbv, ulysses, tp, sequence, float64",
    "llama/tiny, gpipe 4, fewer microbatches, float64",
    "llama/tiny, interleaved, free, float64",
    "llama/tiny, 1f1b, two passes, float64",
    "llama/tiny, uneven split, float32",
    "llama/debug, zero bubble, 4 a rank, float64",
    "llama3/debugmodel, 1f1b, ddp, float32",
}


@pytest.mark.parametrize(("model", "pipe", "dtype"), rows(CASES, SAMPLE))
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


QWEN3 = {f"qwen3/other, {name}": (replace({**SINGLE, **PAIRS}[name], microbatches=2),) for name in ("1f1b", "1f1b, tp")}
QWEN3_SAMPLE = {"qwen3/other, 1f1b, tp, float64"}


@pytest.mark.parametrize(("pipe", "dtype"), rows(QWEN3, QWEN3_SAMPLE))
def test_untied_qwen3_in_stages_is_that_of_one_rank(
    pipe: Pipe, dtype: str, ranks: RankPool, references: References, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """qwen3 with a head of its own, as its larger flavors have, runs in stages; a tied head may not."""
    model = with_ties(tmp_path_factory.mktemp("untied"), "qwen3", tied=False)
    plan = plan_of(pipe, model, dtype, batch=4, seq=32)
    path = references.path("meshlang.testing.parity:rank_titan_reference", plan, "rank_functions:untied")
    target = "meshlang.testing.pipeline:rank_pipeline_step"
    reports = ranks.run(target, "rank_functions:untied", plan, path, {}, ranks=plan.ranks)
    for rank, report in enumerate(reports):
        assert report.misplaced == ()
        assert differences(plan, report.counts, rank) == []
        assert report.worst <= BOUNDS[dtype]


def test_tied_qwen3_in_stages_is_refused() -> None:
    """The debug model's embedding and head are one tensor, which two stages cannot hold."""
    with pytest.raises(SpecError) as caught:
        plan_of(SINGLE["1f1b"], "qwen3/debugmodel", "float64")
    assert [each.code for each in caught.value.diagnostics] == ["tied-stages"]
