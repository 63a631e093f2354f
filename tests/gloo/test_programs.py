"""A step of our own executor is one rank's: schedules of subsequences and of two replicas, torchtitan's model."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_cases import Pipe, plan_of
from references import References
from rows import BOUNDS, rows

from meshlang.pipeline.live import peak_counts
from meshlang.testing.parity import differences
from meshlang.testing.ranks import RankPool

RECIPES = {
    "llama/tiny": "meshlang_models.llama.config_registry:tiny",
    "llama/debug": "meshlang_models.llama.config_registry:debug",
    "llama/deep": "meshlang_models.llama.config_registry:deep",
}


def pipe(schedule: str, *, recompute: bool = False, **options: Any) -> Pipe:
    """A schedule with further lines of `[pipeline]` as keywords; with `recompute` layers run again in the backward."""
    words = [
        f"{key} = {options.pop(key)}"
        for key in ("subsequences", "chunks", "lengths", "weights", "directions", "sync", "runtime")
        if key in options
    ]
    words += ["[recompute]", 'modules = ["layers.*"]'] if recompute else []
    return Pipe(schedule=schedule, more="\n".join(words), **options)


#: Each schedule with its usual numbers, on two ranks of the pipeline.
SCHEDULES: dict[str, dict[str, Any]] = {
    "seq1f1b": {"subsequences": 4},
    "seq1f1b_interleaved": {"subsequences": 2, "chunks": 2},
    "seqv": {"subsequences": 2},
    "bsipipe": {"subsequences": 2},
    "bitpipe": {},
    "dualpipe": {},
    "chimera": {},
}
#: Ways to run each of them.
WAYS: dict[str, dict[str, Any]] = {
    "": {},
    ", tp": {"tp": 2},
    ", tp, sequence": {"tp": 2, "sequence": True},
    ", ddp": {"dp": 2},
    ", fsdp": {"dp": 2, "store": True},
    ", recompute": {"recompute": True},
    ", fsdp, tp, sequence": {"dp": 2, "tp": 2, "store": True, "sequence": True},
}
#: Ways to cut 64 tokens into subsequences that differ.
UNEQUAL: dict[str, dict[str, Any]] = {
    ", lengths": {"subsequences": 3, "lengths": "[33, 20, 11]"},
    ", lengths, tp, sequence": {"subsequences": 4, "lengths": "[26, 18, 14, 6]", "tp": 2, "sequence": True},
    ", lengths, ddp, recompute": {"subsequences": 2, "lengths": "[41, 23]", "dp": 2, "recompute": True},
    ", equal-flops": {"subsequences": 4, "lengths": '"equal-flops"'},
}
TINY = {
    **{name + way: pipe(name, **{**own, **more}) for name, own in SCHEDULES.items() for way, more in WAYS.items()},
    **{
        name + way: pipe(name, **{**own, **more})
        for name, own in SCHEDULES.items()
        if own
        for way, more in UNEQUAL.items()
    },
    "bsipipe, tp, sequence, recompute": pipe("bsipipe", subsequences=2, tp=2, sequence=True, recompute=True),
    "bsipipe, one chunk": pipe("bsipipe", subsequences=2, chunks=1),
    "bsipipe, three chunks": pipe("bsipipe", subsequences=3, chunks=3, lengths="[33, 20, 11]"),
    "bsipipe, two passes": pipe("bsipipe", subsequences=2, microbatches=2, accumulation=2),
    "bsipipe 4": pipe("bsipipe", subsequences=4, pp=4, chunks=1),
    "bsipipe 4, tp": pipe("bsipipe", subsequences=2, pp=4, chunks=1, tp=2),
    "bsipipe 6": pipe("bsipipe", subsequences=3, pp=6, chunks=1, lengths="[33, 20, 11]"),
    "seq1f1b 4": pipe("seq1f1b", subsequences=2, pp=4),
    "seq1f1b 6": pipe("seq1f1b", subsequences=3, pp=6, lengths="[33, 20, 11]"),
    "seq1f1b_interleaved, three chunks": pipe("seq1f1b_interleaved", subsequences=2, chunks=3),
    "seqv, ddp, recompute": pipe("seqv", subsequences=2, dp=2, recompute=True),
    "chimera 4": pipe("chimera", pp=4),
    "chimera 4, fsdp": pipe("chimera", pp=4, dp=2, store=True),
    "chimera 6": pipe("chimera", pp=6),
    "dualpipe 4": pipe("dualpipe", pp=4, microbatches=8),
}
#: Gradients of weights put off; with three subsequences on four or six ranks, "held" is an order of its own.
LATE = {
    **{
        f"{name}, late{way}": pipe(name, subsequences=2, weights='"late"', **WAYS[way])
        for name in ("bsipipe", "seqv")
        for way in ("", ", tp, sequence", ", fsdp", ", recompute")
    },
    "bsipipe, late, lengths": pipe("bsipipe", subsequences=3, lengths="[33, 20, 11]", weights='"late"'),
    "bsipipe, held": pipe("bsipipe", subsequences=2, weights='"held"'),
    "bsipipe 4, held": pipe("bsipipe", subsequences=3, lengths="[33, 20, 11]", pp=4, chunks=1, weights='"held"'),
    "bsipipe 4, held, tp": pipe("bsipipe", subsequences=4, pp=4, chunks=1, tp=2, weights='"held"'),
    "bsipipe 6, held": pipe("bsipipe", subsequences=2, pp=6, chunks=1, weights='"held"'),
    "bsipipe 6, held, lengths": pipe("bsipipe", subsequences=2, lengths="[41, 23]", pp=6, chunks=1, weights='"held"'),
    "seqv, held": pipe("seqv", subsequences=3, lengths="[33, 20, 11]", weights='"held"'),
    "bsipipe, lazy sums": pipe("bsipipe", subsequences=2, sync='"lazy"'),
}
#: Of the model with twelve layers: more microbatches one way, more stages a rank.
DEEP = {
    "bsipipe 6, uneven": pipe("bsipipe", subsequences=2, pp=6, directions='"uneven"'),
    "bsipipe 6, uneven, late": pipe("bsipipe", subsequences=2, pp=6, directions='"uneven"', weights='"late"'),
    "bsipipe 4, held, three chunks": pipe("bsipipe", subsequences=2, pp=4, chunks=3, weights='"held"'),
    "bsipipe 6, uneven, held": pipe("bsipipe", subsequences=2, pp=6, directions='"uneven"', weights='"held"'),
    "bsipipe 6, uneven, lengths, recompute": pipe(
        "bsipipe", subsequences=2, pp=6, lengths="[41, 23]", directions='"uneven"', recompute=True
    ),
    "bsipipe 6, uneven, two passes": pipe(
        "bsipipe", subsequences=2, pp=6, microbatches=2, accumulation=2, directions='"uneven"'
    ),
}
#: Of the model with six layers.
DEBUG = {
    "bsipipe 4, two chunks": pipe("bsipipe", subsequences=2, pp=4),
    "bsipipe 8": pipe("bsipipe", subsequences=4, pp=8, chunks=1, lengths="[22, 18, 14, 10]"),
    "bitpipe 4": pipe("bitpipe", pp=4),
    "chimera 8": pipe("chimera", pp=8, microbatches=8),
    "seq1f1b 8": pipe("seq1f1b", subsequences=2, pp=8),
    "seq1f1b_interleaved 4": pipe("seq1f1b_interleaved", subsequences=2, pp=4, chunks=2),
    "seqv 4": pipe("seqv", subsequences=3, pp=4, lengths="[33, 20, 11]"),
    "seqv 4, fsdp": pipe("seqv", subsequences=2, pp=4, dp=2, store=True),
}
CASES = {
    f"{model}, {name}": (model, made)
    for model, cases in {"llama/tiny": TINY | LATE, "llama/debug": DEBUG, "llama/deep": DEEP}.items()
    for name, made in cases.items()
}
SAMPLE = {
    *(f"llama/tiny, {name}, float64" for name in ("bsipipe", "bsipipe, fsdp", "seq1f1b", "chimera 4")),
    "llama/tiny, bsipipe, tp, sequence, recompute, float64",
    "llama/tiny, bsipipe, lengths, tp, sequence, float64",
    "llama/tiny, seq1f1b_interleaved, lengths, float32",
    "llama/tiny, bitpipe, float64",
    "llama/tiny, dualpipe, ddp, float64",
    "llama/tiny, seqv, ddp, recompute, float64",
    "llama/tiny, bsipipe, tp, float32",
    "llama/tiny, bsipipe 4, held, float64",
    "llama/deep, bsipipe 6, uneven, late, float64",
}


@pytest.mark.parametrize(("model", "made", "dtype"), rows(CASES, SAMPLE))
def test_step_of_a_program_is_that_of_one_rank(
    model: str, made: Pipe, dtype: str, ranks: RankPool, references: References
) -> None:
    """Loss and gradients are one rank's, calls the plan's, the second replica has the first's weights."""
    held_to_one_rank(model, made, dtype, ranks, references)


BY_TORCH = {
    f"llama/tiny, seqv on torch{name}": ("llama/tiny", pipe("seqv", runtime='"torch"', **{"subsequences": 2, **more}))
    for name, more in {
        **WAYS,
        ", four": {"subsequences": 4},
        ", late": {"weights": '"late"'},
    }.items()
} | {"llama/debug, seqv on torch 4": ("llama/debug", pipe("seqv", runtime='"torch"', subsequences=4, pp=4))}
BY_TORCH_SAMPLE = {"llama/tiny, seqv on torch, float64"}


@pytest.mark.parametrize(("model", "made", "dtype"), rows(BY_TORCH, BY_TORCH_SAMPLE))
def test_torchs_pipeline_runs_subsequences(
    model: str, made: Pipe, dtype: str, ranks: RankPool, references: References
) -> None:
    """SeqV over subsequences on torch's runtime has one rank's loss and gradients, and issues the plan's calls."""
    plan = plan_of(made, model, dtype)
    path = references.path("meshlang.testing.parity:rank_titan_reference", plan, RECIPES[model])
    target = "meshlang.testing.pipeline:rank_pipeline_step"
    for rank, report in enumerate(ranks.run(target, RECIPES[model], plan, path, {}, ranks=plan.ranks)):
        assert report.worst <= BOUNDS[dtype]
        assert report.misplaced == ()
        assert differences(plan, report.counts, rank) == []


PACKED = {
    f"llama/tiny, {name}": ("llama/tiny", TINY[name])
    for name in (*SCHEDULES, *(f"{name}, lengths" for name, own in SCHEDULES.items() if own))
}
PACKED_SAMPLE = {"llama/tiny, bsipipe, lengths, float64"}


@pytest.mark.parametrize(("model", "made", "dtype"), rows(PACKED, PACKED_SAMPLE))
def test_step_on_packed_documents_is_that_of_one_rank(
    model: str, made: Pipe, dtype: str, ranks: RankPool, references: References
) -> None:
    """The same of sequences that hold three documents each, whose ends are no ends of subsequences."""
    held_to_one_rank(model, made, dtype, ranks, references, packed=True)


def held_to_one_rank(
    model: str, made: Pipe, dtype: str, ranks: RankPool, references: References, *, packed: bool = False
) -> None:
    """A step of the Program against that of one rank; live forwards are as many as planned, and all is trained."""
    plan = plan_of(made, model, dtype)
    words = "packed" if packed else "titan"
    path = references.path(f"meshlang.testing.parity:rank_{words}_reference", plan, RECIPES[model])
    target = "meshlang.testing.pipeline:rank_program_step"
    found = ranks.run(target, RECIPES[model], plan, path, packed, ranks=plan.ranks)
    assert plan.pipeline is not None
    assert plan.pipeline.program is not None
    peaks = peak_counts(plan.pipeline.program)
    for rank, ran in enumerate(found):
        assert ran.report.worst <= BOUNDS[dtype]
        assert ran.report.misplaced == ()
        assert differences(plan, ran.report.counts, rank) == []
        assert ran.follows
        assert ran.peak == peaks[plan.mesh.coordinate(rank)["pp"]]
    trained = [name for ran in found for name in ran.report.gradients]
    assert {*trained} == {tensor.fqn for tensor in plan.tensors if tensor.kind == "parameter"}
