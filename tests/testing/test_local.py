"""All ranks in one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from meshlang.mesh import Mesh, MeshAxis
from meshlang.plan.ir import Plan
from meshlang.testing import fake_mesh, local_ranks

MESH = Mesh(axes=(MeshAxis(name="dp", size=2), MeshAxis(name="tp", size=2)))


def test_gather_of_parts_is_the_whole() -> None:
    """A tensor cut over two axes and gathered again has its values on each of four ranks."""
    x = torch.arange(16.0).reshape(4, 4)
    with local_ranks(4) as local:
        mesh = local.mesh(MESH)
        cut = distribute_tensor(x, mesh, [Shard(0), Shard(1)])
        assert [part.tolist() for part in local.parts(cut)][1] == [[2.0, 3.0], [6.0, 7.0]]
        whole = cut.redistribute(mesh, [Replicate(), Replicate()])
        assert all(torch.equal(part, x) for part in local.parts(whole))


def test_product_and_gradient_have_right_values() -> None:
    """A row-parallel product is a sum of the ranks' terms, forward and backward."""
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    whole = w.clone().requires_grad_()
    (x @ whole).square().sum().backward()
    with local_ranks(2) as local:
        mesh = local.mesh(Mesh(axes=(MeshAxis(name="tp", size=2),)))
        left: Any = distribute_tensor(x, mesh, [Shard(1)])
        right = distribute_tensor(w, mesh, [Shard(0)]).requires_grad_()
        product = (left @ right).redistribute(mesh, [Replicate()])
        product.square().sum().backward()
        assert all(torch.allclose(part, x @ w) for part in local.parts(product))
        assert right.grad is not None
        parts = local.parts(right.grad)
    assert whole.grad is not None
    assert torch.allclose(torch.cat(parts), whole.grad, atol=1e-5)


def test_each_rank_has_its_own_value() -> None:
    """parts(tensor(make)) == make of each rank, and a collective works on all of them."""
    with local_ranks(3) as local:
        x = local.tensor(lambda rank: torch.full((2,), float(rank)))
        assert [part.tolist() for part in local.parts(x)] == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
        dist.all_reduce(x)
        assert [part.tolist() for part in local.parts(x)] == [[3.0, 3.0]] * 3


def test_a_plain_tensor_is_on_all_ranks() -> None:
    """What was made without a rank is the same on each."""
    x = torch.ones(2)
    with local_ranks(3) as local:
        assert all(part is x for part in local.parts(x))


def test_group_is_gone_afterwards() -> None:
    """An exception inside leaves no process group and no mode behind."""
    with pytest.raises(ZeroDivisionError), local_ranks(2):
        raise ZeroDivisionError
    assert not dist.is_initialized()
    assert type(torch.ones(2)) is torch.Tensor


def test_local_ranks_do_not_nest(fsdp_tp: Plan) -> None:
    """Neither inside each other nor inside a fake mesh."""
    with local_ranks(2), pytest.raises(RuntimeError, match="do not nest"), local_ranks(2):
        pass
    with fake_mesh(fsdp_tp), pytest.raises(RuntimeError, match="do not nest"), local_ranks(2):
        pass


def test_ranks_are_counted() -> None:
    """No rank at all, and a mesh of other ranks, are errors with the numbers."""
    with pytest.raises(ValueError, match="0 ranks"), local_ranks(0):
        pass
    with local_ranks(2) as local, pytest.raises(ValueError, match=r"4 ranks, and 2"):
        local.mesh(MESH)
