"""The estimate of activations is held against the peak of live values, on each rank."""

from pathlib import Path

import block_cases
import context_cases
import meshes
import pipeline_cases
import pytest
from _pytest.mark import ParameterSet
from block_cases import WINDOW, Blocks
from pipeline_cases import SCHEDULES, Pipe

from meshlang.compiler import Request, compile
from meshlang.plan.cost import memory_at
from meshlang.plan.ir import Plan
from meshlang.source import Source
from meshlang.testing.ranks import RankPool

RECIPES = {
    "llama/tiny": "meshlang_models.llama.config_registry:tiny",
    "qwen3/debugmodel": "meshlang_models.qwen3.config_registry:debugmodel",
    "llama3/debugmodel": "meshlang_models.llama3.config_registry:debugmodel",
}
STREAMS = ("tiny", "tiny_complementary")
RECIPES |= {
    f"block_diffusion/{flavor}": f"meshlang_models.block_diffusion.config_registry:{flavor}" for flavor in STREAMS
}
MODEL = "llama/tiny"
RECOMPUTE = '\n[recompute]\nmodules = ["layers.*"]\n'

#: How far an estimate may be from what is measured.
BOUND = 0.15

#: Schedules that compute gradients of weights late recompute nothing.
HALVED = ("interleaved_zero_bubble", "zbv", "dualpipev", "csv")

#: Each way to have keys of the clean stream, and how many rows go on.
BLOCKS = {
    "gathered": Blocks(mesh={"block": 2}),
    "a copy each": Blocks(mesh={"block": 2}, options={"context": 1}),
    "rings of two": Blocks(mesh={"block": 4}, options={"context": 2}),
    "ring": Blocks(mesh={"block": 2}, options={"transport": "ring"}),
    "window": Blocks(mesh={"block": 2}, options={"window": WINDOW}),
    "combined": Blocks(mesh={"block": 2}, strategy="combined_context"),
    "10 blocks": Blocks(mesh={"block": 4}, seq=160),
    "last pruned": Blocks(mesh={"block": 2}, options={"prune_last": True}),
    "views share": Blocks(mesh={"block": 2}, flavor="tiny_complementary", options={"share_clean": True}),
    "views, a copy each": Blocks(mesh={"block": 2}, flavor="tiny_complementary", options={"context": 1}),
    "tp 2, a copy each": Blocks(mesh={"block": 2, "tp": 2}, options={"context": 1}),
    "tp 2, sequence": Blocks(mesh={"block": 2, "tp": 2}, sequence=True),
}

SPECS = {
    **{
        name: meshes.spec(meshes.CASES[name], MODEL, "float32")
        for name in ("one rank", "ddp 2", "fsdp 2", "tp 2", "tp 2, sequence", "fsdp 2, tp 2, sequence")
    },
    "cp 2, ring": context_cases.spec(context_cases.Case(strategy="ring_attention", mesh={"cp": 2}), MODEL, "float32"),
    "cp 2, gathered": context_cases.spec(
        context_cases.Case(strategy="all_gather_attention", mesh={"cp": 2}), MODEL, "float32"
    ),
    "cp 2, ulysses": context_cases.spec(
        context_cases.Case(strategy="ulysses", mesh={"cp": 2}, balance=None), MODEL, "float32"
    ),
    **{name: pipeline_cases.spec(Pipe(schedule=name, **more), MODEL, "float32") for name, more in SCHEDULES.items()},
    **{f"blocks, {name}": block_cases.spec(case, "float32") for name, case in BLOCKS.items()},
    "gpipe 4": pipeline_cases.spec(Pipe(schedule="gpipe", pp=4), MODEL, "float32"),
    "1f1b 4": pipeline_cases.spec(Pipe(schedule="1f1b", pp=4), MODEL, "float32"),
    "1f1b, fsdp, tp": pipeline_cases.spec(
        Pipe(schedule="1f1b", microbatches=2, dp=2, tp=2, store=True, sequence=True), MODEL, "float32"
    ),
    "qwen3": meshes.spec(meshes.CASES["one rank"], "qwen3/debugmodel", "float32"),
    "llama3": meshes.spec(meshes.CASES["one rank"], "llama3/debugmodel", "float32"),
}

CASES = {name: (name, "") for name in SPECS} | {
    f"{name}, recomputed": (name, RECOMPUTE) for name in SPECS if name not in HALVED
}


#: Held by every run; the others with the parity table.
SAMPLE = {
    *SCHEDULES,
    *(f"{name}, recomputed" for name in SCHEDULES if name not in HALVED),
    *("blocks, a copy each", "blocks, a copy each, recomputed", "blocks, last pruned"),
    *("one rank", "one rank, recomputed", "fsdp 2, tp 2, sequence", "fsdp 2, tp 2, sequence, recomputed"),
}


def row(name: str) -> ParameterSet:
    """A case as a parameter."""
    return pytest.param(*CASES[name], id=name, marks=[] if name in SAMPLE else [pytest.mark.parity, pytest.mark.full])


def plan_of(name: str, more: str) -> Plan:
    """The plan of a case."""
    source = Source(name=str(Path(__file__).parent / "spec.toml"), text=SPECS[name] + more)
    return compile(Request(source=source, cards=meshes.CARDS, launch=True))


@pytest.mark.parametrize(("name", "more"), [row(name) for name in CASES])
def test_activations_are_as_estimated(name: str, more: str, ranks: RankPool) -> None:
    """On every rank the peak of what forwards make is within 15 % of the plan's estimate."""
    plan = plan_of(name, more)
    found = ranks.run("memory_ranks:rank_peak", RECIPES[plan.model], plan, plan.block is not None, ranks=plan.ranks)
    for rank, peak in enumerate(found):
        here = plan.mesh.coordinate(rank)
        place = next((here[axis] for axis in plan.axes_of("pipeline")), 0)
        wanted = memory_at(plan, place).activations
        assert wanted is not None
        assert abs(wanted / peak - 1) <= BOUND, f"rank {rank}: {wanted} estimated, {peak} there"
