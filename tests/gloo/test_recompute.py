"""Recomputed modules change no value, and send again in the backward what the plan says."""

from collections.abc import Iterable
from pathlib import Path

import context_cases
import meshes
import pipeline_cases
import pytest
from context_cases import Case
from pipeline_cases import Pipe
from references import References
from rows import BOUNDS, rows

from meshlang.compiler import Request, compile
from meshlang.plan.ir import Plan
from meshlang.source import Source
from meshlang.testing.parity import Report, differences
from meshlang.testing.ranks import RankPool

RECIPE = "meshlang_models.llama.config_registry:tiny"
REFERENCE = "meshlang.testing.parity:rank_titan_reference"
#: `[recompute] modules` of whole layers, of every attention, and of one layer and the head.
LAYERS = '["layers.*"]'
PARTS = ('["layers.*.attention"]', '["layers.1", "lm_head"]')

MESHES = {
    f"llama/tiny, {name}, recomputed {modules}": (name, modules)
    for name, modules in (
        *((name, LAYERS) for name in ("ddp 2", "fsdp 2", "tp 2", "tp 2, sequence", "fsdp 2, tp 2, sequence")),
        *(("fsdp 2, tp 2, sequence", modules) for modules in PARTS),
    )
}

CONTEXT = {
    "ring": Case(strategy="ring_attention", mesh={"cp": 2}),
    "ring, tp": Case(strategy="ring_attention", mesh={"cp": 2, "tp": 2}, sequence=True),
    "all-gather": Case(strategy="all_gather_attention", mesh={"cp": 2}),
    "ulysses": Case(strategy="ulysses", mesh={"cp": 2}, balance=None),
}

PIPES = {
    **{name: Pipe(schedule=name) for name in ("gpipe", "1f1b", "interleaved_1f1b")},
    "1f1b, fsdp, tp": Pipe(schedule="1f1b", microbatches=2, dp=2, tp=2, store=True, sequence=True),
    "1f1b, fsdp, free": Pipe(schedule="1f1b", dp=2, store=True, after="free"),
    "1f1b, ring": Pipe(schedule="1f1b", cp=2, context="ring_attention"),
    "interleaved, tp": Pipe(schedule="interleaved_1f1b", tp=2, sequence=True),
}


def named(cases: Iterable[str]) -> dict[str, tuple[str]]:
    """Cases as rows of the parity table."""
    return {f"llama/tiny, {name}, recomputed layers": (name,) for name in cases}


def recomputing(text: str, modules: str = LAYERS) -> Plan:
    """The plan of a spec to which a table `[recompute]` is added."""
    source = Source(name=str(Path(__file__).parent / "spec.toml"), text=f"{text}\n[recompute]\nmodules = {modules}\n")
    return compile(Request(source=source, cards=meshes.CARDS, launch=True))


def holds(plan: Plan, reports: list[Report], dtype: str) -> None:
    """Values of one rank, and the planned collectives, some of them for the second time."""
    for rank, report in enumerate(reports):
        assert report.misplaced == ()
        assert differences(plan, report.counts, rank) == []
        assert report.worst <= BOUNDS[dtype]


@pytest.mark.parametrize(
    ("name", "modules", "dtype"),
    rows(MESHES, {f"llama/tiny, fsdp 2, tp 2, sequence, recomputed {m}, float64" for m in (LAYERS, *PARTS)}),
)
def test_recomputed_step_is_that_of_one_rank(
    name: str, modules: str, dtype: str, ranks: RankPool, references: References
) -> None:
    """Layers, and parts of layers, run again, and their boundaries redistribute again."""
    plan = recomputing(meshes.spec(meshes.CASES[name], "llama/tiny", dtype), modules)
    path = references.path(REFERENCE, plan, RECIPE)
    holds(plan, ranks.run("meshlang.testing.parity:rank_titan_step", RECIPE, plan, path, {}, ranks=plan.ranks), dtype)


@pytest.mark.parametrize(("name", "dtype"), rows(named(CONTEXT), {"llama/tiny, ring, tp, recomputed layers, float64"}))
def test_strategies_send_again(name: str, dtype: str, ranks: RankPool, references: References) -> None:
    """What attention over a cut sequence sends in the forward, it sends again in the backward."""
    plan = recomputing(context_cases.spec(CONTEXT[name], "llama/tiny", dtype))
    path = references.path("context_cases:rank_reference", plan, RECIPE)
    holds(plan, ranks.run("context_cases:rank_step", RECIPE, plan, path, ranks=plan.ranks), dtype)


@pytest.mark.parametrize(
    ("name", "dtype"),
    rows(named(PIPES), {f"llama/tiny, {n}, recomputed layers, float64" for n in ("1f1b", "1f1b, fsdp, tp")}),
)
def test_recomputed_stages_are_those_of_one_rank(
    name: str, dtype: str, ranks: RankPool, references: References
) -> None:
    """Under a pipeline each microbatch's forward runs again, once."""
    plan = recomputing(pipeline_cases.spec(PIPES[name], "llama/tiny", dtype))
    path = references.path(REFERENCE, plan, RECIPE)
    target = "meshlang.testing.pipeline:rank_pipeline_step"
    holds(plan, ranks.run(target, RECIPE, plan, path, {}, ranks=plan.ranks), dtype)
