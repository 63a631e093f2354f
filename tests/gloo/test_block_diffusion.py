"""Block diffusion on many ranks: two streams, weighted labels and logits of one of them, as on one rank."""

import pipeline_cases
import pytest
from meshes import CASES, plan_of
from pipeline_cases import Pipe
from references import References

from meshlang.plan.ir import Plan
from meshlang.testing.parity import Report, differences
from meshlang.testing.ranks import RankPool

EXACT, CLOSE = 1e-12, 5e-6
BOUNDS = {"float64": EXACT, "float32": CLOSE}

MESHES = (
    *("ddp 2", "fsdp 2", "fsdp 3", "hsdp 2x2", "tp 2", "tp 2, sequence", "tp 4, sequence"),
    *("fsdp 2, tp 2, sequence", "fsdp 4, tp 2, sequence"),
)
STEPS = [
    *(("tiny", name, "float64") for name in MESHES),
    *((flavor, "fsdp 2, tp 2, sequence", "float64") for flavor in ("tiny_complementary", "tiny_shared")),
    *(("tiny", name, "float32") for name in ("fsdp 2", "tp 2, sequence")),
]
PIPES = {
    "1f1b": Pipe(schedule="1f1b"),
    "interleaved, fsdp, tp": Pipe(schedule="interleaved_1f1b", dp=2, tp=2, store=True, sequence=True),
    "head apart": Pipe(schedule="interleaved_1f1b", tp=2, sequence=True, more='split = "embed | 2 | 2 + norm | head"'),
    "dualpipev": Pipe(schedule="dualpipev"),
}


def recipe_of(flavor: str) -> str:
    """The recipe of a flavor."""
    return f"meshlang_models.block_diffusion.config_registry:{flavor}"


def as_one_rank(plan: Plan, reports: list[Report], bound: float) -> None:
    """Every rank found what one rank finds, and did what the plan says."""
    for rank, report in enumerate(reports):
        assert report.misplaced == ()
        assert differences(plan, report.counts, rank) == []
        assert report.worst <= bound


@pytest.mark.parametrize(("flavor", "name", "dtype"), STEPS)
def test_step_is_that_of_one_rank(flavor: str, name: str, dtype: str, ranks: RankPool, references: References) -> None:
    """Loss, every gradient and the planned collectives, on a batch of the recipe's own corrupted text."""
    plan = plan_of(CASES[name], f"block_diffusion/{flavor}", dtype)
    path = references.path("meshlang.testing.parity:rank_data_reference", plan, recipe_of(flavor))
    target = "meshlang.testing.parity:rank_data_step"
    as_one_rank(plan, ranks.run(target, recipe_of(flavor), plan, path, {}, ranks=plan.ranks), BOUNDS[dtype])


@pytest.mark.parametrize("name", PIPES)
def test_pipelined_step_is_that_of_one_rank(name: str, ranks: RankPool, references: References) -> None:
    """Both streams' rows pass from stage to stage, and the last one knows which of them have logits."""
    plan = pipeline_cases.plan_of(PIPES[name], "block_diffusion/tiny", "float64")
    path = references.path("meshlang.testing.parity:rank_data_reference", plan, recipe_of("tiny"))
    target = "meshlang.testing.pipeline:rank_data_step"
    as_one_rank(plan, ranks.run(target, recipe_of("tiny"), plan, path, {}, ranks=plan.ranks), EXACT)
