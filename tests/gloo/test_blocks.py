"""Block diffusion over an axis: one training step on each mesh is that of one rank with a dense mask."""

from collections import Counter

import pytest
import torch
from block_cases import Blocks, plan_of
from references import References
from rows import BOUNDS, rows

from meshlang.plan.ir import Plan
from meshlang.testing.parity import Report, differences
from meshlang.testing.ranks import RankPool

REFERENCE = "meshlang.testing.parity:rank_data_reference"
STEP = "meshlang.testing.parity:rank_data_step"
PIPELINE = "meshlang.testing.pipeline:rank_data_step"

TWO, FOUR, EIGHT = {"block": 2}, {"block": 4}, {"block": 8}
BOTH = ("dp", "block")

CASES = {
    "block 2": Blocks(mesh=TWO),
    "block 2, not stored": Blocks(mesh=TWO, store=()),
    "block 4": Blocks(mesh=FOUR),
    "block 8": Blocks(mesh=EIGHT, seq=256),
    "block 4, 10 blocks": Blocks(mesh=FOUR, seq=160),
    "block 4, 14 blocks": Blocks(mesh=FOUR, seq=224),
    "block 2, ring": Blocks(mesh=TWO, options={"transport": "ring"}),
    "block 4, ring, 14 blocks": Blocks(mesh=FOUR, seq=224, options={"transport": "ring"}),
    "block 8, ring": Blocks(mesh=EIGHT, seq=256, options={"transport": "ring"}),
    "block 4, replicated": Blocks(mesh=FOUR, options={"context": 1}),
    "block 2, replicated": Blocks(mesh=TWO, options={"context": 1}),
    "block 4, two rings": Blocks(mesh=FOUR, options={"context": 2}),
    "block 8, four rings": Blocks(mesh=EIGHT, seq=256, options={"context": 2}),
    "block 4, two rings, streaming": Blocks(mesh=FOUR, seq=160, options={"context": 2, "transport": "ring"}),
    "block 2, combined": Blocks(mesh=TWO, strategy="combined_context"),
    "block 4, combined": Blocks(mesh=FOUR, strategy="combined_context"),
    "block 2, last pruned": Blocks(mesh=TWO, options={"prune_last": True}),
    "block 4, last pruned, ring": Blocks(mesh=FOUR, options={"prune_last": True, "transport": "ring"}),
    "block 2, views apart": Blocks(mesh=TWO, flavor="tiny_complementary"),
    "block 2, views share": Blocks(mesh=TWO, flavor="tiny_complementary", options={"share_clean": True}),
    "block 4, views share": Blocks(mesh=FOUR, seq=224, flavor="tiny_complementary", options={"share_clean": True}),
    "block 2, views share, last pruned": Blocks(
        mesh=TWO, flavor="tiny_complementary", options={"share_clean": True, "prune_last": True}
    ),
    "block 2, shared views apart": Blocks(mesh=TWO, flavor="tiny_shared", options={"share_clean": False}),
    "fsdp 2, block 2": Blocks(mesh={"dp": 2, "block": 2}, store=BOTH),
    "fsdp 2, block 4": Blocks(mesh={"dp": 2, "block": 4}, store=BOTH),
    "ddp 2, block 2 stored": Blocks(mesh={"dp": 2, "block": 2}),
    "block 2, tp 2": Blocks(mesh={"block": 2, "tp": 2}),
    "block 2, tp 2, sequence": Blocks(mesh={"block": 2, "tp": 2}, sequence=True),
    "fsdp 2, block 2, tp 2, sequence": Blocks(mesh={"dp": 2, "block": 2, "tp": 2}, store=BOTH, sequence=True),
    "block 2, recomputed": Blocks(mesh=TWO, recompute=True),
    "block 4, ring, recomputed": Blocks(mesh=FOUR, recompute=True, options={"transport": "ring"}),
    "pp 2, block 2, 1f1b": Blocks(mesh={"pp": 2, "block": 2}, schedule="1f1b"),
    "pp 2, block 2, interleaved": Blocks(mesh={"pp": 2, "block": 2}, schedule="interleaved_1f1b"),
    "pp 2, block 2, 1f1b, recomputed": Blocks(mesh={"pp": 2, "block": 2}, schedule="1f1b", recompute=True),
}

SAMPLE = {
    "block_diffusion, block 2, not stored, float64",
    "block_diffusion, block 4, 10 blocks, float64",
    "block_diffusion, block 4, ring, 14 blocks, float32",
    "block_diffusion, block 4, two rings, float64",
    "block_diffusion, block 2, combined, float64",
    "block_diffusion, block 2, views share, last pruned, float64",
    "block_diffusion, fsdp 2, block 2, float64",
    "block_diffusion, block 2, tp 2, float64",
    "block_diffusion, block 2, recomputed, float64",
    "block_diffusion, pp 2, block 2, 1f1b, float64",
}

TABLE = {f"block_diffusion, {name}": (name,) for name in CASES}


def on_axis(plan: Plan, report: Report) -> Report:
    """The report with rings, which are a part of their axis, called by its name."""
    counts = Counter[tuple[object, ...]]()
    for (kind, axis, pass_, size), calls in report.counts.items():
        counts[kind, "block" if axis.startswith("?") else axis, pass_, size] += calls
    return Report(loss=report.loss, gradients=report.gradients, misplaced=report.misplaced, counts=counts)


@pytest.mark.parametrize(("name", "dtype"), rows(TABLE, SAMPLE))
def test_step_is_that_of_one_rank(name: str, dtype: str, ranks: RankPool, references: References) -> None:
    """Loss, every gradient and every collective, on corrupted text of the recipe's own."""
    case = CASES[name]
    plan = plan_of(case, dtype)
    path = references.path(REFERENCE, plan, case.recipe)
    target = PIPELINE if case.schedule else STEP
    for rank, found in enumerate(ranks.run(target, case.recipe, plan, path, {}, ranks=plan.ranks)):
        report = on_axis(plan, found)
        assert report.misplaced == ()
        assert differences(plan, report.counts, rank) == []
        assert report.worst <= BOUNDS[dtype]


@pytest.mark.parametrize("mesh", [TWO, FOUR], ids=["block 2", "block 4"])
def test_windowed_step_is_that_of_one_rank(mesh: dict[str, int], ranks: RankPool, references: References) -> None:
    """Loss and every gradient where attention sees no further back than a window."""
    case = Blocks(mesh=mesh, seq=256, options={"window": 40})
    plan = plan_of(case, "float64")
    path = references.path("block_cases:rank_windowed_reference", plan, case.recipe)
    for report in ranks.run(STEP, case.recipe, plan, path, {}, ranks=plan.ranks):
        assert report.worst <= BOUNDS["float64"]


def test_noise_is_that_of_any_mesh(ranks: RankPool) -> None:
    """Token ids and labels of steps 2 and 3, bit for bit: on one, two and four ranks, and after a resume."""
    whole = _gathered(ranks, 1, 0)[1:]
    for size, first in ((2, 0), (4, 0), (1, 1), (4, 1)):
        found = _gathered(ranks, size, first)[1 - first :]
        assert len(found) == len(whole) == 2
        for mine, theirs in zip(found, whole, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def _gathered(ranks: RankPool, size: int, first: int) -> list[list[torch.Tensor]]:
    """(ids, labels, clean ids) of each step, the ranks' rows put back in the order of the sequence."""
    plan = plan_of(Blocks(mesh={"block": size}, seq=128), "float32")
    found = ranks.run("block_cases:rank_batches", Blocks(mesh=TWO).recipe, plan, 3 - first, first, ranks=size)
    steps = []
    for step in range(3 - first):
        whole = [torch.zeros(4, 128, dtype=torch.int64) for _ in range(3)]
        for ids, labels, clean, corrupted_at, clean_at in (rank[step] for rank in found):
            whole[0][:, corrupted_at], whole[1][:, corrupted_at] = ids, labels
            whole[2][:, clean_at] = clean
        steps.append(whole)
    return steps
