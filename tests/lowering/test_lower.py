"""A plan laid over a plain model, on the fake mesh of one rank: what is placed, hooked and installed."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from meshlang.lowering.boundary import boundary
from meshlang.lowering.dtensor import hook_output, lower
from meshlang.lowering.errors import LoweringError
from meshlang.lowering.mesh import device_mesh
from meshlang.plan.ir import Plan, StrategyUse
from meshlang.testing.fake import fake_group


@pytest.fixture
def mesh(plan: Plan) -> Iterator[DeviceMesh]:
    """The plan's mesh, as rank 1 sees it."""
    with fake_group(plan.ranks, rank=1):
        yield device_mesh(plan.mesh, "cpu")


def test_parts_are_the_planned_ones(plan: Plan, model: nn.Module, mesh: DeviceMesh) -> None:
    """Each parameter's part has the shape that the plan gives this rank."""
    lower(plan, model, mesh)
    here = plan.mesh.coordinate(1)
    for name, parameter in model.named_parameters():
        assert isinstance(parameter, DTensor)
        assert tuple(parameter.to_local().shape) == plan.by_fqn[name].local_shape(plan.mesh, here)


def test_units_are_fsdp_groups(plan: Plan, model: nn.Module, mesh: DeviceMesh) -> None:
    """Every module of a unit is an FSDP module, and so is the whole."""
    lower(plan, model, mesh)
    wanted = {"", *(name for unit in plan.units for name in unit.modules)}
    assert {name for name, module in model.named_modules() if isinstance(module, FSDPModule)} == wanted


def test_strategy_installs_its_part(
    plan: Plan, model: nn.Module, mesh: DeviceMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The torch part of a strategy is called with the plan, the model and the mesh of its axis."""
    seen: list[Any] = []
    ops = ModuleType("marking_ops")
    ops.install = lambda *given: seen.extend(given)  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "marking_ops", ops)
    use = StrategyUse(name="marking", axis="tp", ops="marking_ops")
    marked = replace(plan, strategies=(use,))
    lower(marked, model, mesh)
    assert seen[:3] == [marked, use, model]
    assert seen[3].mesh_dim_names == ("tp",)


def test_strategy_without_its_part_is_an_error(plan: Plan, model: nn.Module, mesh: DeviceMesh) -> None:
    """A strategy whose torch part is not there is named, with its import path."""
    use = StrategyUse(name="marking", axis="tp", ops="not_there_ops")
    with pytest.raises(LoweringError, match="the strategy marking names not_there_ops"):
        lower(replace(plan, strategies=(use,)), model, mesh)


def test_output_must_be_one_tensor(plan: Plan, mesh: DeviceMesh) -> None:
    """A module that gives something else than its planned output is named."""
    module = nn.Identity()
    hook_output(module, boundary(plan, plan.by_port["lm_head", "output"], mesh))
    with pytest.raises(LoweringError, match="lm_head output is a NoneType without a tensor, in the plan one tensor"):
        module(None)
