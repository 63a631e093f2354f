"""What pictures draw is what plans and Programs say: counts, pairs, coordinates and peaks."""

from __future__ import annotations

import re
from itertools import pairwise, product
from pathlib import Path

import pytest
from reports import BLOCKS, Made

from meshlang.compiler import Request, compile
from meshlang.mesh import Mesh, MeshAxis
from meshlang.pipeline import orders, v_orders
from meshlang.pipeline.ir import Program
from meshlang.pipeline.notation import program_of
from meshlang.pipeline.sequence_orders import seq1f1b_interleaved
from meshlang.pipeline.simulate import simulate
from meshlang.pipeline.zigzag import bsipipe
from meshlang.plan.blocks import Blocks
from meshlang.report.pictures.mesh import mesh_picture
from meshlang.report.pictures.model import Module, tree
from meshlang.report.pictures.pairs import pairs_picture, seen_pairs
from meshlang.report.pictures.shown import fitted, shown
from meshlang.report.pictures.tensors import groups, tensor_picture
from meshlang.report.pictures.timeline import held_over_time, timeline_data, timeline_picture


def mesh(**sizes: int) -> Mesh:
    """A mesh of axes and sizes."""
    return Mesh(axes=tuple(MeshAxis(name=name, size=size) for name, size in sizes.items()))


# Ranks


def test_first_few_and_last_are_shown() -> None:
    """Of a long axis the first and the last coordinates are drawn; of a short one all."""
    assert shown(4, 4) == (0, 1, 2, 3)
    assert shown(128, 5) == (0, 1, 2, 3, 127)
    assert [len(each) for each in fitted([16, 8], 24)] == [3, 8]
    assert [len(each) for each in fitted([2, 4], 24)] == [2, 4]


@pytest.mark.parametrize("sizes", [{"dp": 2, "tp": 2}, {"pp": 2, "dp": 3, "cp": 2, "tp": 4}, {"tp": 1}, {"dp": 7}])
def test_small_meshes_are_drawn_whole(sizes: dict[str, int]) -> None:
    """Every rank has one cell, no two of them in one place, and says its coordinates."""
    found = mesh(**sizes)
    body = mesh_picture(found, 2).body
    assert sorted(map(int, re.findall(r'data-r="(\d+)"', body))) == list(range(found.ranks))
    places = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="40" height="26"', body)
    assert len(set(places)) == found.ranks
    for rank in range(found.ranks):
        assert f"rank {rank}: {', '.join(f'{a} {c}' for a, c in found.coordinate(rank).items())}</title>" in body


def test_large_meshes_are_folded() -> None:
    """A mesh of 131,072 ranks is a few hundred cells, with its first and its last rank."""
    body = mesh_picture(mesh(pp=16, dp=1024, tp=8), 8).body
    ranks = re.findall(r'data-r="(\d+)"', body)
    assert len(ranks) <= 24 * 16
    assert {"0", "131071"} <= set(ranks)


def test_groups_of_rank_0_are_marked() -> None:
    """At first, cells that differ from rank 0 along one axis are marked in its colour."""
    body = mesh_picture(mesh(dp=2, tp=3), None).body
    marks = dict(re.findall(r'class="rank ?([^"]*)" data-r="(\d+)"', body))
    found = {rank: word for word, rank in re.findall(r'class="rank ?([^"]*)" data-r="(\d+)"', body)}
    assert marks
    assert found == {"0": "here", "1": "on1", "2": "on1", "3": "on0", "4": "", "5": ""}


def test_a_frame_holds_one_node() -> None:
    """Each node has a frame, and where a node's ranks do not lie together none is drawn."""
    assert mesh_picture(mesh(dp=4, tp=4), 8).body.count("<title>node ") == 2
    assert mesh_picture(mesh(dp=4, tp=4), 4).body.count("<title>node ") == 4
    assert mesh_picture(mesh(dp=4, tp=4), None).body.count("<title>node ") == 0


# Tensors


def test_parts_of_a_tensor_are_each_rank_s(reports: dict[str, Made]) -> None:
    """The parts that a picture names with their ranks are those that the plan gives these ranks."""
    plan = reports["tiny"].plan
    for group in groups(plan):
        body = tensor_picture(plan, group, 1).body
        told = re.findall(r"<title>\[([^\]]*)\] on ranks? ([\d ]+);", body)
        ranks: list[int] = []
        for rows, names in told:
            sizes = tuple(int(b) - int(a) for a, b in (each.split(":") for each in rows.split(", ")))
            for rank in map(int, names.split()):
                assert sizes == group.first.local_shape(plan.mesh, plan.mesh.coordinate(rank))[:2]
                ranks.append(rank)
        assert sorted(ranks) == list(range(plan.ranks)), group.text


def test_parts_at_rest_count_ranks(reports: dict[str, Made]) -> None:
    """On 16,384 ranks a part of `wo` is on 16 of them, and the first ones are named."""
    plan = reports["largest"].plan
    (group,) = [each for each in groups(plan) if each.text == "layers.*.attention.wo.weight"]
    body = tensor_picture(plan, group, 1).body
    assert "[0:128, 0:2048] on ranks 0 1024 2048 3072 " in body
    assert "and 4 more; dp 0, tp 0</title>" in body
    assert "[16256:16384, 14336:16384] on ranks 1023 2047 " in body


# The model


def calls(module: Module) -> list[tuple[object, ...]]:
    """Every call of a tree."""
    mine = [(c.call.pass_, c.call.kind, c.call.axis, c.call.count, c.call.bytes) for c in module.calls]
    return mine + [each for inner in module.modules for each in calls(inner)]


def modules(module: Module) -> dict[str, int]:
    """Name -> how many there are, of every module of a tree."""
    found = {module.name: module.count}
    for inner in module.modules:
        found |= modules(inner)
    return found


def test_the_tree_has_every_collective(reports: dict[str, Made]) -> None:
    """Each collective of a plan stands in the tree, equal ones of equal stages once."""
    for name in ("tiny", "largest", "bsipipe", "pipeline", "blocks"):
        plan = reports[name].plan
        expected = {(c.pass_, c.kind, c.axis, c.count, c.bytes) for c in plan.collectives}
        assert set(calls(tree(plan))) == expected
        if not plan.stages:
            assert len(calls(tree(plan))) == len(plan.collectives)


def test_collectives_stand_at_their_module(reports: dict[str, Made]) -> None:
    """`wo`'s sum stands at `wo`, a layer's gather at the layer, the loss at the model."""
    root = tree(reports["tiny"].plan)
    counts = modules(root)
    assert [counts[name] for name in ("layers", "layers.*", "layers.*.attention.qkv_linear")] == [1, 4, 4]
    assert counts["layers.*.attention.wo"] == 4

    def at(module: Module, name: str) -> Module | None:
        found = [module] if module.name == name else [at(inner, name) for inner in module.modules]
        return next((each for each in found if each is not None), None)

    for name, what in (("layers.*.attention.wo", "output"), ("layers.*", "weights"), ("", "loss")):
        module = at(root, name)
        assert module is not None
        assert what in {call.what for call in module.calls}, name


# The pipeline

PROGRAMS = {
    "1f1b": program_of(orders.one_f_one_b(4, 8)),
    "interleaved": program_of(orders.interleaved(4, 2, 8)),
    "zbv": program_of(v_orders.zbv(4, 8)),
    "sequences": seq1f1b_interleaved(4, 2, 4, 4),
    "bsipipe": bsipipe(4, 2, 8, 2),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_curves_reach_the_peaks(program: Program) -> None:
    """What a rank holds over time starts and ends at nothing, and its most is the simulation's peak."""
    timeline = simulate(program)
    for rank in range(program.ranks):
        held = held_over_time(program, timeline, rank)
        assert max(value for _, value in held) == pytest.approx(timeline.peaks[rank], abs=1e-12)
        assert held[-1][1] == pytest.approx(0, abs=1e-12)
        assert [at for at, _ in held] == sorted(at for at, _ in held)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_every_operation_is_drawn(program: Program) -> None:
    """The picture has a box, and the page's data a row, for each operation."""
    timeline = simulate(program)
    count = sum(map(len, program.order))
    assert len(re.findall(r"M[\d.]+ [\d.]+h", timeline_picture("t", program, timeline).body)) == count
    rows = timeline_data(program, timeline)["rows"]
    assert sum(map(len, rows)) == count
    assert all(a[6] <= b[5] + 1e-9 for row in rows for a, b in pairwise(row))


def test_long_pipelines_are_cut() -> None:
    """Of very many operations the first ranks are drawn, and the picture says so."""
    program = program_of(orders.one_f_one_b(64, 1024))
    picture = timeline_picture("t", program, simulate(program))
    assert "the first 17 of 64 ranks" in picture.body
    assert len(picture.file()) < 2_000_000


# Blocks


def blocks_of(tmp_path: Path, *changes: tuple[str, str]) -> tuple[Blocks, int | None]:
    """A plan's account of blocks, and its window."""
    text = BLOCKS
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "spec.toml"
    path.write_text(text)
    plan = compile(Request.of(path))
    assert plan.block is not None
    window = dict(plan.strategies[0].options).get("window")
    return plan.block, window if isinstance(window, int) else None


CHANGES = {
    "gathered": (),
    "two rings": (("block_size = 16", "block_size = 16\ncontext = 2"),),
    "a copy each": (("block_size = 16", "block_size = 16\ncontext = 1"),),
    "uneven": (("block = 4", "block = 5"),),
    "window": (("block_size = 16", "block_size = 16\nwindow = 40"),),
    "narrow window": (("block_size = 16", "block_size = 16\nwindow = 5"),),
    "combined": (("[strategy.csbp]", "[strategy.combined_context]"),),
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=list(CHANGES))
def test_pairs_are_the_plan_s(changes: tuple[tuple[str, str], ...], tmp_path: Path) -> None:
    """Pairs by rank of the key sum up to what the plan counts for each rank."""
    blocks, window = blocks_of(tmp_path, *changes)
    assert tuple(map(sum, seen_pairs(blocks, window))) == blocks.pairs


@pytest.mark.parametrize("changes", CHANGES.values(), ids=list(CHANGES))
def test_pairs_are_those_of_the_mask(changes: tuple[tuple[str, str], ...], tmp_path: Path) -> None:
    """Pairs by the ranks of query and key are those counted one by one from the mask's words."""
    blocks, window = blocks_of(tmp_path, ("seq = 256", "seq = 192"), *changes)
    size, ring = blocks.block_size, blocks.context
    owner = {t: r for r, runs in enumerate(blocks.owners) for a, b in runs for t in range(a * size, b * size)}
    found = [[0] * blocks.size for _ in range(blocks.size)]
    for rank in range(blocks.size):
        mine = range(rank // ring * ring, (rank // ring + 1) * ring)
        clean = {t: r for r in mine for a, b in blocks.clean[r] for t in range(a, b)}
        for query, key in product(range(blocks.sequence), repeat=2):
            near = window is None or key > query - window
            if owner[query] == rank and near:
                found[rank][rank] += key // size == query // size
                found[rank][clean[key]] += key // size < query // size
            if clean.get(query) == rank and near and blocks.clean[rank]:
                found[rank][clean[key]] += key // size <= query // size
    assert [list(row) for row in seen_pairs(blocks, window)] == found


def test_many_blocks_are_put_together(tmp_path: Path) -> None:
    """4096 blocks over 4 ranks are a picture of a few hundred boxes."""
    blocks, window = blocks_of(tmp_path, ("seq = 256", "seq = 65536"))
    assert blocks.blocks == 4096
    assert pairs_picture(blocks, window).body.count("<rect") < 400
