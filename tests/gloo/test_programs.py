"""A step of our own executor is one rank's: schedules of subsequences and of two replicas, torchtitan's model."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_cases import Pipe, plan_of
from references import References
from rows import BOUNDS, rows

from meshlang.pipeline.live import peak_counts
from meshlang.testing.ranks import RankPool

RECIPES = {
    "llama/tiny": "meshlang_models.llama.config_registry:tiny",
    "llama/debug": "meshlang_models.llama.config_registry:debug",
}


def pipe(schedule: str, *, recompute: bool = False, **options: Any) -> Pipe:
    """A schedule with further lines of `[pipeline]` as keywords; with `recompute` layers run again in the backward."""
    words = [f"{key} = {options.pop(key)}" for key in ("subsequences", "chunks") if key in options]
    words += ["[recompute]", 'modules = ["layers.*"]'] if recompute else []
    return Pipe(schedule=schedule, more="\n".join(words), **options)


TINY = {
    "bsipipe": pipe("bsipipe", subsequences=2),
    "bsipipe, tp": pipe("bsipipe", subsequences=2, tp=2),
    "bsipipe, tp, sequence, recompute": pipe("bsipipe", subsequences=2, tp=2, sequence=True, recompute=True),
    "bsipipe, ddp": pipe("bsipipe", subsequences=2, dp=2),
    "bsipipe, fsdp": pipe("bsipipe", subsequences=2, dp=2, store=True),
    "bsipipe, one chunk": pipe("bsipipe", subsequences=2, chunks=1),
    "bsipipe, two passes": pipe("bsipipe", subsequences=2, microbatches=2, accumulation=2),
    "bsipipe 4": pipe("bsipipe", subsequences=4, pp=4, chunks=1),
    "bsipipe 4, tp": pipe("bsipipe", subsequences=2, pp=4, chunks=1, tp=2),
    "seq1f1b": pipe("seq1f1b", subsequences=4),
    "seq1f1b 4": pipe("seq1f1b", subsequences=2, pp=4),
    "seq1f1b, fsdp, tp, sequence": pipe("seq1f1b", subsequences=2, dp=2, tp=2, store=True, sequence=True),
    "seq1f1b_interleaved": pipe("seq1f1b_interleaved", subsequences=2, chunks=2),
    "seqv, ddp, recompute": pipe("seqv", subsequences=2, dp=2, recompute=True),
    "bitpipe": pipe("bitpipe"),
    "bitpipe, tp": pipe("bitpipe", tp=2),
    "dualpipe, ddp": pipe("dualpipe", dp=2),
    "chimera 4": pipe("chimera", pp=4),
    "chimera 4, fsdp": pipe("chimera", pp=4, dp=2, store=True),
}
DEBUG = {
    "bsipipe 4, two chunks": pipe("bsipipe", subsequences=2, pp=4),
    "seqv 4, fsdp": pipe("seqv", subsequences=2, pp=4, dp=2, store=True),
}
CASES = {
    f"{model}, {name}": (model, made)
    for model, cases in {"llama/tiny": TINY, "llama/debug": DEBUG}.items()
    for name, made in cases.items()
}
SAMPLE = {
    *(f"llama/tiny, {name}, float64" for name in ("bsipipe", "bsipipe, fsdp", "seq1f1b", "chimera 4")),
    "llama/tiny, bsipipe, tp, sequence, recompute, float64",
    "llama/tiny, seqv, ddp, recompute, float64",
    "llama/tiny, bsipipe, tp, float32",
}


@pytest.mark.parametrize(("model", "made", "dtype"), rows(CASES, SAMPLE))
def test_step_of_a_program_is_that_of_one_rank(
    model: str, made: Pipe, dtype: str, ranks: RankPool, references: References
) -> None:
    """Loss and gradients are one rank's, the second replica has the first's weights, live forwards are as planned."""
    plan = plan_of(made, model, dtype)
    path = references.path("meshlang.testing.parity:rank_titan_reference", plan, RECIPES[model])
    target = "meshlang.testing.pipeline:rank_program_step"
    reports = ranks.run(target, RECIPES[model], plan, path, ranks=plan.ranks)
    assert plan.pipeline is not None
    assert plan.pipeline.program is not None
    peaks = peak_counts(plan.pipeline.program)
    for rank, report in enumerate(reports):
        assert report.worst <= BOUNDS[dtype]
        assert report.follows
        assert report.peak == peaks[plan.mesh.coordinate(rank)["pp"]]
    trained = [name for report in reports for name in report.gradients]
    assert {*trained} == {tensor.fqn for tensor in plan.tensors if tensor.kind == "parameter"}
