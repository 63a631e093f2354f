"""Tensors among what modules take and give, on the fake mesh of one rank."""

from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from meshlang.lowering.boundary import boundary
from meshlang.lowering.dtensor import hook_inputs, hook_output
from meshlang.lowering.errors import LoweringError
from meshlang.lowering.mesh import device_mesh
from meshlang.lowering.values import everywhere, nowhere, result
from meshlang.plan.ir import Plan
from meshlang.testing.fake import fake_group

Pair = namedtuple("Pair", ["first", "second"])
X, Y = torch.zeros(2), torch.ones(2)


@pytest.fixture
def mesh(plan: Plan) -> Iterator[DeviceMesh]:
    """The plan's mesh, as rank 1 sees it."""
    with fake_group(plan.ranks, rank=1):
        yield device_mesh(plan.mesh, "cpu")


OUTPUTS: dict[str, tuple[Any, Any]] = {
    "tensor": (X, Y),
    "tuple": ((X, None), (Y, None)),
    "list": ([None, X, X], [None, Y, X]),
    "named tuple": (Pair(first=X, second=X), Pair(first=Y, second=X)),
    "mapping": (OrderedDict(loss=None, logits=X), OrderedDict(loss=None, logits=Y)),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_first_tensor_is_the_result(name: str) -> None:
    """Of a structure the first tensor is moved; the rest stays, in a structure of the same type."""
    output, wanted = OUTPUTS[name]
    found, put = result(output, "it")
    assert found is X
    made = put(Y)
    assert type(made) is type(wanted)
    pairs = zip(_leaves(made), _leaves(wanted), strict=True)
    assert all(a is b for a, b in pairs)
    assert any(leaf is X for leaf in _leaves(output)), "what the module gave is left alone"


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    return list(value.values() if isinstance(value, dict) else value)


@pytest.mark.parametrize("output", [None, (), {"loss": None}, 3.0])
def test_structure_without_a_tensor_is_an_error(output: Any) -> None:
    """Where no tensor comes, what came is named."""
    with pytest.raises(LoweringError, match=f"it is a {type(output).__name__} without a tensor"):
        result(output, "it")


def test_what_is_not_planned_is_whole(mesh: DeviceMesh) -> None:
    """Masks and positions, also in tuples, are whole on each rank of the tensor axes."""
    mask, (cos, sin), flag = everywhere((X, (Y, Y), True), mesh["tp"], "it")
    assert all(isinstance(each, DTensor) and each.placements == (Replicate(),) for each in (mask, cos, sin))
    assert flag is True


def test_what_is_not_planned_wants_no_gradient(mesh: DeviceMesh) -> None:
    """A value with a gradient must be in the plan: nothing else says over which axes that is a sum."""
    with pytest.raises(LoweringError, match="it wants a gradient, and the plan does not say where the value is"):
        everywhere(torch.zeros(2, requires_grad=True), mesh["tp"], "it")


def test_part_of_a_value_stays_a_part(mesh: DeviceMesh) -> None:
    """A module that computes on plain tensors gets whole values only, unless the plan speaks of them."""
    assert nowhere(3, "it") == 3
    whole = DTensor.from_local(X, mesh["tp"], [Replicate()], run_check=False)
    assert not isinstance(nowhere(whole, "it"), DTensor)
    with pytest.raises(LoweringError, match=r"it is \(Shard\(dim=0\),\), and the plan does not say"):
        nowhere(DTensor.from_local(X, mesh["tp"], [Shard(0)], run_check=False), "it")


class Keywords(nn.Module):
    """Gives what it gets."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """A tuple, with the mask behind."""
        return x, mask


def test_arguments_by_name_are_moved(plan: Plan, mesh: DeviceMesh) -> None:
    """An argument is checked and moved by its name, given by place or not; beside it what comes is whole."""
    edge = plan.by_port["layers.0.attention_norm", "input.x"]
    module = Keywords()
    hook_inputs(module, {"x": boundary(plan, edge, mesh)}, mesh=mesh["tp"])
    hook_output(module, boundary(plan, replace(edge, port="output"), mesh))
    x = torch.zeros(4, 32, 128)
    for given in (((x, Y), {}), ((), {"mask": Y, "x": x}), ((x,), {"mask": Y})):
        out, mask = module(*given[0], **given[1])
        assert out.placements == (Shard(1),)
        assert mask.placements == (Replicate(),)


def test_planned_argument_must_be_given(plan: Plan, mesh: DeviceMesh) -> None:
    """An argument of the plan that a call leaves out is named: nothing else would notice."""
    module = Keywords()
    hook_inputs(module, {"mask": boundary(plan, plan.by_port["layers.0.attention_norm", "input.x"], mesh)})
    with pytest.raises(LoweringError, match=r"layers.0.attention_norm input.x is in the plan, and is not given"):
        module(X)


def test_shape_must_be_the_card_s(plan: Plan, mesh: DeviceMesh) -> None:
    """A value whose dims are not the card's is told with both: a number of dims, or a size of the model."""
    port = boundary(plan, plan.by_port["layers.0.attention_norm", "input.x"], mesh)
    for shape in ((32, 128), (4, 32, 64)):
        with pytest.raises(LoweringError, match=r"has the shape .*, in the plan \(batch, seq, embed 128\)"):
            port.enter(torch.zeros(shape))
    assert port.enter(torch.zeros(7, 5, 128)).shape == (7, 10, 128)
