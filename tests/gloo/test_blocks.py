"""Block diffusion over an axis: one training step on each mesh is that of one rank with a dense mask."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from block_cases import WINDOW, Blocks, plan_of
from references import References
from rows import BOUNDS, rows

from meshlang.testing.parity import differences
from meshlang.testing.ranks import RankError, RankPool

REFERENCE = "block_cases:rank_reference"
STEP = "meshlang.testing.parity:rank_data_step"
PIPELINE = "meshlang.testing.pipeline:rank_data_step"

TWO, FOUR, EIGHT = {"block": 2}, {"block": 4}, {"block": 8}
BOTH = ("dp", "block")

#: Each way to run attention over the axis.
WAYS = {
    "gathered": Blocks(mesh=TWO),
    "ring": Blocks(mesh=TWO, options={"transport": "ring"}),
    "replicated": Blocks(mesh=TWO, options={"context": 1}),
    "rings of two": Blocks(mesh=FOUR, options={"context": 2}),
    "streaming rings of two": Blocks(mesh=FOUR, options={"context": 2, "transport": "ring"}),
    "window": Blocks(mesh=TWO, options={"window": WINDOW}),
    "combined": Blocks(mesh=TWO, strategy="combined_context"),
    "views share": Blocks(mesh=TWO, flavor="tiny_complementary", options={"share_clean": True}),
    "last pruned": Blocks(mesh=TWO, options={"prune_last": True}),
}

#: Each mesh, length, objective and policy that every way is held on.
CONDITIONS: dict[str, dict[str, Any]] = {
    "block 2": {"mesh": TWO},
    "block 4": {"mesh": FOUR},
    "block 8": {"mesh": EIGHT, "seq": 256},
    "block 4, 10 blocks": {"mesh": FOUR, "seq": 160},
    "block 4, 14 blocks": {"mesh": FOUR, "seq": 224},
    "fsdp 2, block 2": {"mesh": {"dp": 2, "block": 2}, "store": BOTH},
    "block 2, tp 2": {"mesh": {"block": 2, "tp": 2}},
    "pp 2, block 2, 1f1b": {"mesh": {"pp": 2, "block": 2}, "schedule": "1f1b"},
    "block 2, two views": {"flavor": "tiny_complementary"},
    "block 2, recomputed": {"recompute": True},
}


def crossed() -> dict[str, Blocks]:
    """Every way under every condition; rings of two take four ranks where others take two."""
    found: dict[str, Blocks] = {}
    for condition, changed in CONDITIONS.items():
        for way, case in WAYS.items():
            mesh = changed.get("mesh", case.mesh)
            if "of two" in way and mesh["block"] == 2:
                if mesh == TWO:
                    continue  # that of four ranks is a row of its own
                mesh = mesh | FOUR
            if condition == "block 2, two views" and case.flavor != "tiny":
                continue  # two views are what it shares one clean stream among
            found[f"{condition}, {way}"] = replace(case, **changed | {"mesh": mesh})
    return found


CASES = crossed() | {
    "block 2, not stored": Blocks(mesh=TWO, store=()),
    "block 4, last pruned, ring": Blocks(mesh=FOUR, options={"prune_last": True, "transport": "ring"}),
    "block 2, views share, last pruned": Blocks(
        mesh=TWO, flavor="tiny_complementary", options={"share_clean": True, "prune_last": True}
    ),
    "pp 2, block 2, head apart, last pruned": Blocks(
        mesh={"pp": 2, "block": 2},
        schedule="interleaved_1f1b",
        split="embed | 2 | 2 | norm + head",
        options={"prune_last": True},
    ),
    "block 2, shared views apart": Blocks(mesh=TWO, flavor="tiny_shared", options={"share_clean": False}),
    "fsdp 2, block 4": Blocks(mesh={"dp": 2, "block": 4}, store=BOTH),
    "ddp 2, block 2 stored": Blocks(mesh={"dp": 2, "block": 2}),
    "block 2, tp 2, sequence": Blocks(mesh={"block": 2, "tp": 2}, sequence=True),
    "fsdp 2, block 2, tp 2, sequence": Blocks(mesh={"dp": 2, "block": 2, "tp": 2}, store=BOTH, sequence=True),
    "block 4, ring, recomputed": Blocks(mesh=FOUR, recompute=True, options={"transport": "ring"}),
    "pp 2, block 2, interleaved": Blocks(mesh={"pp": 2, "block": 2}, schedule="interleaved_1f1b"),
    "pp 2, block 2, 1f1b, recomputed": Blocks(mesh={"pp": 2, "block": 2}, schedule="1f1b", recompute=True),
}

SAMPLE = {
    "block_diffusion, block 2, not stored, float64",
    "block_diffusion, block 4, 10 blocks, gathered, float64",
    "block_diffusion, block 4, 10 blocks, combined, float64",
    "block_diffusion, block 4, 14 blocks, ring, float32",
    "block_diffusion, block 4, rings of two, float64",
    "block_diffusion, block 2, combined, float64",
    "block_diffusion, block 2, views share, last pruned, float64",
    "block_diffusion, fsdp 2, block 2, gathered, float64",
    "block_diffusion, block 2, tp 2, last pruned, float64",
    "block_diffusion, block 2, recomputed, gathered, float64",
    "block_diffusion, pp 2, block 2, 1f1b, gathered, float64",
    "block_diffusion, pp 2, block 2, head apart, last pruned, float64",
    "block_diffusion, pp 2, block 2, 1f1b, views share, float32",
}

TABLE = {f"block_diffusion, {name}": (name,) for name in CASES}

#: Each way in bfloat16, on two ranks and on four.
NARROW = {
    f"block_diffusion, {size}, {way}": (f"{size}, {way}",)
    for way in WAYS
    for size in ("block 2", "block 4")
    if f"{size}, {way}" in CASES
}
NARROW_SAMPLE = {"block_diffusion, block 2, gathered, bfloat16", "block_diffusion, block 4, window, bfloat16"}


@pytest.mark.parametrize(("name", "dtype"), rows(TABLE, SAMPLE))
def test_step_is_that_of_one_rank(name: str, dtype: str, ranks: RankPool, references: References) -> None:
    """Loss, every gradient and every collective, on corrupted text of the recipe's own."""
    held(CASES[name], dtype, dtype, ranks, references)


@pytest.mark.parametrize(("name", "dtype"), rows(NARROW, NARROW_SAMPLE, ("bfloat16",)))
def test_step_in_bfloat16_is_near(name: str, dtype: str, ranks: RankPool, references: References) -> None:
    """Computed in bfloat16, loss and every gradient are within 3e-2 of one rank's in float32 on the same weights."""
    held(CASES[name], dtype, "float32", ranks, references)


def held(case: Blocks, dtype: str, reference: str, ranks: RankPool, references: References) -> None:
    """A step on each rank against that of one rank with a dense mask."""
    plan, alone = plan_of(case, dtype), plan_of(case, reference)
    mask = "window" if "window" in case.options else ""
    path = references.path(REFERENCE, alone, case.recipe, mask, dtype)
    found = ranks.run(PIPELINE if case.schedule else STEP, case.recipe, plan, path, {}, ranks=plan.ranks)
    for rank, report in enumerate(found):
        assert report.misplaced == ()
        assert differences(plan, report.counts, rank) == []
        assert report.worst <= BOUNDS[dtype]


def test_checker_of_types_has_no_rule_for_streams(ranks: RankPool, references: References) -> None:
    """Under spmd_types' checker the first forward ends where a rank's two streams become one tensor."""
    case = CASES["block 2, gathered"]
    plan = plan_of(case, "float32")
    path = references.path(REFERENCE, plan, case.recipe, "", "float32")
    with pytest.raises(RankError, match="No valid sharding strategy for cat"):
        ranks.run(STEP, case.recipe, plan, path, {"typecheck": True}, ranks=plan.ranks)


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
