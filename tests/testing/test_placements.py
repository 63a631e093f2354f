"""A plan's tensors asserted, and modules held against a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshlang.mesh import Mesh, MeshAxis
from meshlang.plan.ir import Dim, Origin, Plan, Tensor
from meshlang.testing import assert_follows_plan, assert_local_shapes, assert_placements, fake_mesh
from meshlang.testing.placements import Cut, cuts, part

WO = "layers.*.attention.wo"


def test_right_placements_pass(fsdp_tp: Plan) -> None:
    """A pattern's tensors are as said on each axis."""
    assert_placements(fsdp_tp, {WO: {"tp": "S(1)", "dp": "stored"}, "norm": {"tp": "R"}})


def test_every_misplaced_tensor_is_listed(fsdp_tp: Plan) -> None:
    """All tensors and patterns that are otherwise come in one AssertionError."""
    with pytest.raises(AssertionError) as error:
        assert_placements(fsdp_tp, {WO: {"tp": "S(0)"}, "norm": {"dp": "R"}, "nothing.here": {"tp": "R"}})
    assert str(error.value).splitlines() == [
        "layers.0.attention.wo.weight: S(1) on `tp`, not S(0)",
        "layers.1.attention.wo.weight: S(1) on `tp`, not S(0)",
        "layers.2.attention.wo.weight: S(1) on `tp`, not S(0)",
        "layers.3.attention.wo.weight: S(1) on `tp`, not S(0)",
        "norm.weight: stored S(0) on `dp`, not R",
        "nothing.here: names no tensor",
    ]


def test_unknown_words_are_no_assertion(fsdp_tp: Plan) -> None:
    """An axis that the mesh lacks, or a word that is no placement, is a ValueError."""
    with pytest.raises(ValueError, match="`cp` is no axis"):
        assert_placements(fsdp_tp, {WO: {"cp": "R"}})
    with pytest.raises(ValueError, match='"Shard" is no placement'):
        assert_placements(fsdp_tp, {WO: {"tp": "Shard"}})


def test_local_shapes_are_at_rest(fsdp_tp: Plan) -> None:
    """The shape of a rank's part is after both cuts; each other shape is listed."""
    assert_local_shapes(fsdp_tp, {"tok_embeddings.weight": (66, 128), "norm.weight": [64]}, rank=3)
    with pytest.raises(AssertionError) as error:
        assert_local_shapes(fsdp_tp, {"norm.weight": (128,), "norm.bias": (128,)}, rank=1)
    assert str(error.value).splitlines() == [
        "norm.weight: (64,) on rank 1, not (128,)",
        "norm.bias: is no tensor of the plan",
    ]


MESHES = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3)).map(
    lambda sizes: Mesh(axes=tuple(MeshAxis(name=n, size=s) for n, s in zip(("a", "b", "c"), sizes, strict=True)))
)


def _tensor(units: int, width: int, axes: tuple[str, ...], stored: tuple[str, ...]) -> Tensor:
    origin = Origin(by="place", file="spec.toml", line=1, column=1)
    dim = Dim(names=("rows",), size=units * width, units=units, axes=axes, origin=origin)
    return Tensor(fqn="w", kind="parameter", dims=(dim,), stored=stored)


@given(
    mesh=MESHES,
    units=st.integers(1, 9),
    width=st.integers(1, 3),
    order=st.permutations(("a", "b", "c")),
    cut=st.integers(0, 2),
)
def test_parts_make_the_whole(mesh: Mesh, units: int, width: int, order: list[str], cut: int) -> None:
    """The parts of all ranks have the plan's shapes, do not overlap, and leave no row out."""
    tensor = _tensor(units, width, tuple(order[:cut]), tuple(order[cut:]))
    rows: list[int] = []
    for rank in range(mesh.ranks):
        coordinate = mesh.coordinate(rank)
        ((start, length),) = part(tensor, mesh, coordinate)
        assert (length,) == tensor.local_shape(mesh, coordinate)
        rows += range(start, start + length)
    assert sorted(rows) == list(range(units * width))


def test_outer_cuts_of_later_dims_split() -> None:
    """A mesh dim that cuts inside a later one is split by it; across tensor dims nothing is."""
    mesh = Mesh(axes=(MeshAxis(name="dp", size=2), MeshAxis(name="cp", size=3), MeshAxis(name="tp", size=4)))
    tensor = _tensor(48, 1, ("tp",), ("dp", "cp"))
    assert cuts(tensor, mesh, [("dp",), ("cp",), ("tp",)]) == (Cut(dim=0, split=4), Cut(dim=0, split=4), Cut(dim=0))
    assert cuts(tensor, mesh, [("dp", "cp"), ("tp",)]) == (Cut(dim=0, split=4), Cut(dim=0))
    assert cuts(tensor, mesh, [("tp",), ("dp", "cp")]) == (Cut(dim=0), Cut(dim=0))
    assert cuts(_tensor(48, 1, (), ("dp",)), mesh, [("dp",), ("tp",)]) == (Cut(dim=0), None)


def _embedding(mesh: Any, placements: list[Any]) -> Any:
    import torch
    from torch import nn
    from torch.distributed.tensor import distribute_tensor

    module = nn.Module()
    module.tok_embeddings = nn.Embedding(264, 128, device="meta")
    weight = distribute_tensor(module.tok_embeddings.weight.detach(), mesh, placements)
    module.tok_embeddings.weight = torch.nn.Parameter(weight)
    return module


@pytest.mark.parametrize("rank", range(4))
def test_fsdp_over_tensor_parallel_follows(fsdp_tp: Plan, rank: int) -> None:
    """A parameter cut over the sub-mesh tp, then by torch's FSDP over dp, is as the plan says."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard

    with fake_mesh(fsdp_tp, rank=rank) as fake:
        module = _embedding(fake.mesh["tp"], [Shard(0)])
        fully_shard(module, mesh=fake.mesh["dp"])
        assert_follows_plan(module, fsdp_tp, fake.mesh)


def test_flattened_axes_follow(make_plan: Callable[..., Plan], fsdp_tp_text: str) -> None:
    """Axes that FSDP flattened into one dim are told by their ranks, whatever that dim is called."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard

    text = fsdp_tp_text.replace('dp = "rest"', "dp = 2\ncp = 3") + '[place]\nseq = "cp"\n[store]\nover = ["dp", "cp"]\n'
    text += '[within."layers.*.attention.inner_attention"]\nseq = "whole"\n'
    plan = make_plan(text)
    for rank in (0, 5, 11):
        with fake_mesh(plan, rank=rank) as fake:
            module = _embedding(fake.mesh["tp"], [Shard(0)])
            fully_shard(module, mesh=fake.mesh["dp", "cp"]._flatten("anything"))
            assert_follows_plan(module, plan, fake.mesh)


def test_the_order_of_cuts_is_held(fsdp_tp: Plan) -> None:
    """The same placements in DTensor's own order give equal shapes and other rows: a mismatch."""
    from torch.distributed.tensor import Shard

    with fake_mesh(fsdp_tp) as fake, pytest.raises(AssertionError) as error:
        assert_follows_plan(_embedding(fake.mesh, [Shard(0), Shard(0)]), fsdp_tp, fake.mesh)
    assert str(error.value) == ("tok_embeddings.weight: found `dp` first to cut dim 0, planned inside 2 parts of it")


def test_each_mismatch_is_a_line(fsdp_tp: Plan) -> None:
    """Wrong placements, local shapes, whole parameters and strays are all in one AssertionError."""
    from torch import nn
    from torch.distributed.tensor import Replicate, Shard

    with fake_mesh(fsdp_tp) as fake:
        module = _embedding(fake.mesh, [Replicate(), Shard(1)])
        module.norm = nn.LayerNorm(128, bias=False, device="meta")
        module.stray = nn.Linear(2, 2, bias=False, device="meta")
        with pytest.raises(AssertionError) as error:
            assert_follows_plan(module, fsdp_tp, fake.mesh)
    assert str(error.value).splitlines() == [
        "tok_embeddings.weight: found R on `dp`, planned stored S(0)",
        "tok_embeddings.weight: found S(1) on `tp`, planned S(0)",
        "tok_embeddings.weight: found local shape (264, 64), planned (66, 128)",
        "norm.weight: found R on `dp`, planned stored S(0)",
        "norm.weight: found local shape (128,), planned (64,)",
        "stray.weight: found a parameter, planned none",
    ]


def test_wrappers_do_not_rename(fsdp_tp: Plan, skeleton: Callable[..., Any]) -> None:
    """Names behind activation checkpointing are the plan's names."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    with fake_mesh(fsdp_tp) as fake:
        module = fake.distribute(skeleton(fsdp_tp))
        module.layers = checkpoint_wrapper(module.layers)
        assert_follows_plan(module, fsdp_tp, fake.mesh)
