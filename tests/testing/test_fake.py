"""One process stands for any rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from meshlang.diagnostics import SpecError
from meshlang.plan.ir import Plan
from meshlang.testing import assert_follows_plan, fake_mesh

Skeleton = Callable[..., nn.Module]


@pytest.mark.parametrize("rank", range(4))
def test_every_rank_has_its_coordinate(fsdp_tp: Plan, rank: int) -> None:
    """The mesh has the plan's axis names, and the coordinate that the plan gives the rank."""
    with fake_mesh(fsdp_tp, 4, rank) as fake:
        assert fake.mesh.mesh_dim_names == ("dp", "tp")
        assert {axis: fake.mesh.get_local_rank(axis) for axis in ("dp", "tp")} == fake.coordinate
        assert dist.get_rank() == rank


@pytest.mark.parametrize("rank", range(4))
def test_distributed_parameters_follow_the_plan(fsdp_tp: Plan, skeleton: Skeleton, rank: int) -> None:
    """Parameters on the meta device become DTensors with the plan's placements and local shapes."""
    with fake_mesh(fsdp_tp, rank=rank) as fake:
        module = fake.distribute(skeleton(fsdp_tp))
        assert_follows_plan(module, fsdp_tp, fake.mesh)
        weight: Any = module.get_parameter("tok_embeddings.weight")
        assert weight.is_meta
        assert weight.shape == (264, 128)
        assert weight.to_local().shape == (66, 128)


def test_a_rank_holds_its_own_values(fsdp_tp: Plan, skeleton: Skeleton) -> None:
    """Real values are cut over tp first, then over dp, as FSDP cuts what tensor parallelism left."""
    module = skeleton(fsdp_tp, "cpu")
    weight = module.get_parameter("tok_embeddings.weight")
    with torch.no_grad():
        weight.copy_(torch.arange(264.0)[:, None].expand(264, 128))
    with fake_mesh(fsdp_tp, rank=1) as fake:  # dp 0, tp 1
        local: Any = fake.distribute(module).get_parameter("tok_embeddings.weight")
        assert local.to_local()[:, 0].tolist() == list(range(132, 198))


def test_tied_parameters_stay_tied(fsdp_tp: Plan, skeleton: Skeleton) -> None:
    """One parameter under two names is one DTensor under both."""
    module = skeleton(fsdp_tp)
    module.get_submodule("lm_head").weight = module.get_parameter("tok_embeddings.weight")
    with fake_mesh(fsdp_tp) as fake:
        fake.distribute(module)
    assert module.get_parameter("lm_head.weight") is module.get_parameter("tok_embeddings.weight")


def test_misfits_are_all_listed(fsdp_tp: Plan) -> None:
    """Unknown names and other shapes are one error, and the module is left as it was."""
    module = nn.Module()
    module.norm = nn.LayerNorm(64, bias=False, device="meta")
    module.stray = nn.Linear(2, 2, bias=False, device="meta")
    with fake_mesh(fsdp_tp) as fake, pytest.raises(ValueError, match=r"does not fit") as error:
        fake.distribute(module)
    assert "norm.weight: has shape (64,), the plan (128,)" in str(error.value)
    assert "stray.weight: is no tensor of the plan" in str(error.value)


def test_group_is_gone_after_an_error(fsdp_tp: Plan) -> None:
    """An exception inside leaves no process group behind."""
    with pytest.raises(ZeroDivisionError), fake_mesh(fsdp_tp):
        raise ZeroDivisionError
    assert not dist.is_initialized()


def test_nesting_is_refused(fsdp_tp: Plan) -> None:
    """A second fake mesh inside a first is an error that names the group in the way; the first lives on."""
    with fake_mesh(fsdp_tp):
        with pytest.raises(RuntimeError, match=r"in a fake group of 4 ranks already"), fake_mesh(fsdp_tp):
            pass
        assert dist.get_world_size() == 4


def test_other_ranks_are_refused(fsdp_tp: Plan) -> None:
    """A plan is for its own ranks only, and a rank lies inside them."""
    with pytest.raises(ValueError, match=r"for 4 ranks, not 8"), fake_mesh(fsdp_tp, 8):
        pass
    with pytest.raises(ValueError, match=r"no rank 4 of 4"), fake_mesh(fsdp_tp, rank=4):
        pass


def test_a_spec_file_is_compiled(tmp_path: Path, fsdp_tp_text: str) -> None:
    """A path is read and compiled for the ranks; its findings come as SpecError before any group."""
    path = tmp_path / "spec.toml"
    path.write_text(fsdp_tp_text)
    with fake_mesh(path, 8, rank=7) as fake:
        assert fake.mesh.shape == (4, 2)
    path.write_text(fsdp_tp_text.replace("tp = 2", "tp = 3"))
    with pytest.raises(SpecError), fake_mesh(path, 6):
        pass
    assert not dist.is_initialized()


def test_many_ranks_are_cheap(make_plan: Callable[..., Plan], fsdp_tp_text: str) -> None:
    """A thousand ranks fit one process."""
    plan = make_plan(fsdp_tp_text, 1024)
    with fake_mesh(plan, rank=1023) as fake:
        assert fake.coordinate == {"dp": 511, "tp": 1}
