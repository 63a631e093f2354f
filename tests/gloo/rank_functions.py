"""What the tests of the pool, of the recorder and of moves run on its ranks."""

import os
import time
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

from meshlang.lowering.layout import Move
from meshlang.lowering.move import move_local, redistribute_local
from meshlang.mesh import Mesh, MeshAxis
from meshlang.plan.ir import Plan
from meshlang.testing import titan
from meshlang.testing.collectives import axis_groups, count_collectives
from meshlang.testing.exact import local_part, seeded_tensor

if TYPE_CHECKING:
    from torchtitan.trainer import Trainer


def total(value: int) -> list[int]:
    """[rank, ranks, the sum of rank + value over the ranks]."""
    found = torch.tensor([dist.get_rank() + value])
    dist.all_reduce(found)
    return [dist.get_rank(), dist.get_world_size(), int(found)]


def fail_on(rank: int) -> None:
    """That rank raises while the others wait for it."""
    if dist.get_rank() == rank:
        raise ValueError(f"rank {rank} has had enough")
    dist.barrier()


def die_on(rank: int) -> None:
    """That rank's process ends while the others wait for it."""
    if dist.get_rank() == rank:
        os._exit(3)
    dist.barrier()


def sleep_on(rank: int) -> None:
    """That rank gives no answer for a while."""
    if dist.get_rank() == rank:
        time.sleep(60)


def state() -> tuple[int, int]:
    """(threads that torch computes with, values left by an earlier call)."""
    left = getattr(torch, "left_by_a_test", 0)
    torch.left_by_a_test = left + 1  # pyright: ignore[reportAttributeAccessIssue]
    return torch.get_num_threads(), left


# The recorder


def issue_all() -> list[tuple[str, str, str, int]]:
    """Each kind of collective, by each way to ask for it, on a mesh of one = 1, two = 2, three = 2."""
    mesh = init_device_mesh("cpu", (1, 2, 2), mesh_dim_names=("one", "two", "three"))
    axes = Mesh(axes=tuple(MeshAxis(name=n, size=s) for n, s in (("one", 1), ("two", 2), ("three", 2))))
    one, two, three = (mesh.get_group(name) for name in ("one", "two", "three"))
    x = torch.ones(4, 4)
    with count_collectives(axis_groups(axes, dist.get_rank())) as issued:
        dist.all_reduce(x, group=one)
        dist.all_reduce(x, group=two)
        dist.all_reduce(x)
        functional.all_reduce(x, "sum", three).wait()
        functional.all_reduce_coalesced([x, x[:2].contiguous()], "sum", two)
        dist.all_gather([torch.empty_like(x) for _ in range(2)], x, group=two)
        dist.all_gather_single(torch.empty(8, 4), x, group=three)
        dist.reduce_scatter_single(torch.empty(2, 4), x, group=three)
        dist.all_to_all_single(torch.empty_like(x), x, group=two)
        part = distribute_tensor(x, mesh["two"], [Shard(0)], src_data_rank=None).requires_grad_()
        torch.softmax(part.detach(), dim=0)
        part.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()]).sum().backward()
    return [(call.kind, call.axis, call.pass_, call.bytes) for call in issued.calls]


# Moves

KINDS: dict[str, Placement] = {"S(0)": Shard(0), "S(1)": Shard(1), "R": Replicate(), "P": Partial()}


def move_values() -> dict[str, float]:
    """For each pair of placements, the error of the moved value against the one that is wanted."""
    group, size, rank = dist.group.WORLD, dist.get_world_size(), dist.get_rank()
    assert group is not None
    whole = seeded_tensor("whole", (2 * size, 3 * size))
    terms = [seeded_tensor(f"term {i}", tuple(whole.shape)) for i in range(size - 1)]
    terms.append(whole - sum(terms))
    held = {"S(0)": whole.chunk(size, 0)[rank], "S(1)": whole.chunk(size, 1)[rank], "R": whole, "P": terms[rank]}
    errors = {}
    for src, dst in permutations(KINDS, 2):
        moved = redistribute_local(held[src], group, KINDS[src], KINDS[dst])
        wanted = held[dst]
        if dst == "P":
            dist.all_reduce(moved := moved.clone())
            wanted = whole
        errors[f"{src} {dst}"] = float((moved - wanted).abs().max())
    return errors


#: The gradient of a value: of a part the same part, of a term the whole, of a whole value as named.
GRADIENTS = {"S(0)": "S(0)", "S(1)": "S(1)", "P": "R", "R": "P", "I": "R"}
MOVES = [
    ("S(0)", "R"),
    ("S(0)", "I"),
    ("P", "S(1)"),
    ("P", "I"),
    ("P", "R"),
    ("I", "R"),
    ("I", "S(0)"),
    ("S(0)", "S(1)"),
]


def move_adjoints() -> dict[str, float]:
    """For each move with a meaning, | <move(x), g> - <x, back(g)> |, inner products over all ranks.

    A whole value counts once, a sum's terms are added up: so the products do not depend on
    the placements.
    """
    group, size, rank = dist.group.WORLD, dist.get_world_size(), dist.get_rank()
    assert group is not None
    errors = {}
    for src, dst in MOVES:
        x, g = (_held(f"{name} {rank}", kind, size) for name, kind in (("x", src), ("g", GRADIENTS[dst])))
        move = Move(
            axis="a",
            src=_placement(src),
            dst=_placement(dst),
            grad_src=_placement(GRADIENTS[src]),
            grad_dst=_placement(GRADIENTS[dst]),
        )
        x.requires_grad_()
        y = move_local(x, group, move)
        y.backward(g)
        assert x.grad is not None
        errors[f"{src} {dst}"] = abs(_product(y, g, dst) - _product(x, x.grad, src))
    return errors


def _placement(kind: str) -> Placement:
    return KINDS["R" if kind == "I" else kind]


def _held(seed: str, kind: str, size: int) -> torch.Tensor:
    """A part, or a term, of this rank's own; a whole value is the same on every rank."""
    shape = {"S(0)": (2, 3 * size), "S(1)": (2 * size, 3)}.get(kind, (2 * size, 3 * size))
    return seeded_tensor(seed if kind in ("S(0)", "S(1)", "P") else seed.split()[0], shape)


def _product(value: torch.Tensor, gradient: torch.Tensor, kind: str) -> float:
    """<value, gradient>: each rank's share added up, or one rank's where both are whole."""
    found = (value.detach() * gradient).sum()
    if kind != "I":
        dist.all_reduce(found)
    return float(found)


# Weights


def seeded_parts() -> float:
    """The error of full tensors put together from parts on a 2x2 mesh, one dim cut twice among them."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    full = seeded_tensor("w", (10, 6))
    worst = 0.0
    for placements in ([Shard(0), Shard(1)], [Shard(0), Shard(0)], [Replicate(), Shard(1)], [Shard(0), Replicate()]):
        part = distribute_tensor(full, mesh, placements, src_data_rank=None)
        assert isinstance(part, DTensor)
        worst = max(worst, float((local_part(full, part) - part.to_local()).abs().max()))
    return worst


# Recipes


def tied() -> "Trainer.Config":
    """torchtitan's llama3 debug model with embedding and head one tensor."""
    from meshlang_models.llama3.config_registry import debugmodel

    config = debugmodel()
    assert config.model_spec is not None
    config.model_spec.model.enable_weight_tying = True  # pyright: ignore[reportAttributeAccessIssue]
    return config


def untied() -> "Trainer.Config":
    """torchtitan's qwen3 debug model with a head of its own, as its larger flavors have."""
    from meshlang_models.qwen3.config_registry import debugmodel

    config = debugmodel()
    assert config.model_spec is not None
    config.model_spec.model.enable_weight_tying = False  # pyright: ignore[reportAttributeAccessIssue]
    return config


def other_degrees(recipe: str, plan: Plan) -> None:
    """Build the recipe's model under the plan on a mesh of one data axis."""
    config = titan.laid_out(titan.config_of(recipe, plan), plan)
    degrees = {"tensor_parallel_degree": 1, "data_parallel_shard_degree": plan.ranks}
    config = replace(config, parallelism=replace(config.parallelism, **degrees))
    titan.build(config, plan, titan.parallel_dims_of(config, plan))


def selective(recipe: str, plan: Plan) -> None:
    """Lay a plan over a recipe that recomputes some of each layer."""
    from torchtitan.distributed.activation_checkpoint import SelectiveAC

    titan.laid_out(replace(titan.config_of(recipe, plan), activation_checkpoint=SelectiveAC.Config()), plan)
