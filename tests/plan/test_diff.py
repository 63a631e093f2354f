"""What differs between two plans although their tensors and collectives are alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from pipelines import FOUR_RANKS as PIPELINE

from meshlang.compiler import Request, compile
from meshlang.plan.cost import memory
from meshlang.plan.diff import diff
from meshlang.plan.ir import Plan
from meshlang.report.lock import lock_text
from meshlang.report.tensor import tensor_text

BLOCKS = """meshlang = 1
include = ["preset:whole_weights"]
model = "block_diffusion/tiny"

[mesh]
block = 2

[sizes]
batch = 8
seq = 256

[strategy.csbp]
axis = "block"
block_size = 16
"""


def planned(folder: Path, text: str, *sets: str) -> Plan:
    """The plan of a spec with keys laid over it."""
    path = folder / "spec.toml"
    path.write_text(text)
    return compile(Request.of(str(path), sets=sets))


@pytest.mark.parametrize(
    ("text", "laid", "line"),
    [
        (PIPELINE, "pipeline.schedule=chimera", "pipeline bsipipe -> chimera"),
        (PIPELINE, "pipeline.sync=lazy", "bsipipe: sync eager -> lazy"),
        (PIPELINE, "pipeline.microbatches=4", "microbatches 8 -> 4"),
        (PIPELINE, "pipeline.subsequences=2", "subsequences unset -> 2"),
        (PIPELINE, "mesh.pp=1", "pp 4 -> 1"),
        (PIPELINE, "precision.reduce=bfloat16", "reduce type float32 -> bfloat16"),
        (BLOCKS, "sizes.accumulation=2", "sizes 8 x 256 -> 8 x 256 in 2 passes"),
        (BLOCKS, "strategy.csbp.prune_last=true", "csbp over block: prune_last false -> true"),
        (BLOCKS, "strategy.csbp.kernel=flash", "csbp over block: kernel auto -> flash"),
    ],
)
def test_what_runs_otherwise_is_told(tmp_path: Path, text: str, laid: str, line: str) -> None:
    """A key of a schedule, a strategy or a precision is a difference, also where nothing else moves for it."""
    before, after = planned(tmp_path, text), planned(tmp_path, text, laid)
    found = diff(before, after)
    assert line in found.mesh
    assert not any("another order" in each for each in found.mesh)


@pytest.mark.parametrize(
    ("text", "laid", "line"),
    [
        (PIPELINE, "pipeline.schedule=chimera", 'schedule = "chimera"'),
        (PIPELINE, "pipeline.sync=lazy", 'keys = "weights together; directions even; sync lazy"'),
        (PIPELINE, "pipeline.microbatches=4", "microbatches = 4"),
        (
            BLOCKS,
            "strategy.csbp.prune_last=true",
            '"csbp over block" = "block_size 16; transport gather; kernel auto; prune_last true"',
        ),
    ],
)
def test_lock_says_what_runs(tmp_path: Path, text: str, laid: str, line: str) -> None:
    """A key of a schedule or a strategy is in the golden file, so that another one is a drift."""
    before, after = (lock_text(planned(tmp_path, text, *sets)).splitlines() for sets in ((), (laid,)))
    assert line in after
    assert line not in before


def test_tied_tensor_is_explained_by_the_name_asked_for(tmp_path: Path) -> None:
    """The heading has the name that was asked for, and the next line the other one."""
    text = PIPELINE.partition("[pipeline]")[0].replace("llama/tiny", "qwen3/debugmodel").replace("pp = 4", "dp = 1")
    told = tensor_text(planned(tmp_path, text), "lm_head.weight")
    assert told is not None
    first, second = told.splitlines()[:2]
    assert first.startswith("lm_head.weight: parameter")
    assert second == "  the same tensor as tok_embeddings.weight"


@pytest.mark.parametrize(
    ("laid", "keys"),
    [
        ('recompute.modules=["layers.*"]', ["activations", "total"]),
        ("sizes.seq=512", ["activations", "total"]),
        ("pipeline.schedule=1f1b", ["activations", "total"]),
        ("sizes.batch=16", ["activations", "total"]),
    ],
)
def test_memory_of_a_rank_is_told(tmp_path: Path, laid: str, keys: list[str]) -> None:
    """Where a rank holds more or less at once, both figures stand there, and nothing of what is alike."""
    before, after = planned(tmp_path, PIPELINE), planned(tmp_path, PIPELINE, laid)
    old, new = memory(before), memory(after)
    lines = [f"{key} {getattr(old, key)} bytes -> {getattr(new, key)} bytes on the fullest rank" for key in keys]
    assert list(diff(before, after).memory) == lines


def test_memory_that_one_plan_lacks_is_told(tmp_path: Path) -> None:
    """Without sizes activations are not known, and the difference says so."""
    text = PIPELINE.partition("[pipeline]")[0].replace("pp = 4", "dp = 1")
    found = diff(planned(tmp_path, text.partition("[sizes]")[0]), planned(tmp_path, text)).memory
    assert found[0].startswith("activations not known -> ")


def test_strategies_are_told_by_name(tmp_path: Path) -> None:
    """Another strategy on the same blocks is told as such, and the blocks are not said to change into themselves."""
    other = BLOCKS.replace("strategy.csbp", "strategy.combined_context")
    found = diff(planned(tmp_path, BLOCKS), planned(tmp_path, other))
    assert found.mesh == ("strategies csbp over block -> combined_context over block",)


def test_files_with_other_orders_differ(tmp_path: Path) -> None:
    """The order of a file is a difference where its name and numbers are not."""
    text = PIPELINE.replace("pp = 4", "pp = 2").replace('"bsipipe"', '"csv"\nfile = "order.csv"').replace("= 8", "= 2")
    (tmp_path / "order.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    before = planned(tmp_path, text)
    (tmp_path / "order.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n")
    assert diff(before, planned(tmp_path, text)).mesh == ("csv: another order",)
    assert diff(before, before).empty


def test_tensors_of_another_shape_do_not_move(tmp_path: Path) -> None:
    """Of two models' tensors of one name those of one shape are compared, and the others are named."""
    text = PIPELINE.partition("[pipeline]")[0].replace("pp = 4", "dp = 1")
    found = diff(planned(tmp_path, text), planned(tmp_path, text, "model=llama/debug"))
    assert found.mesh[0] == "model llama/tiny -> llama/debug"
    assert "lm_head.weight" in found.reshaped
    assert not found.tensors
