"""A plan in torchtitan's words: one ShardingConfig a module.

The plan's axes become torchtitan's by their role: all data axes together are `dp`, a context
axis is `cp`, a tensor axis is `tp`. A whole value is R where its gradient is a sum of the
ranks' terms and I where it is whole; leaving out the difference would leave gradients
unsummed, or summed twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import spmd_types as spmd
from torchtitan.distributed.parallel_dims import MeshAxisName
from torchtitan.protocols.sharding import LocalMapConfig, ShardingConfig, SpmdLayout

from ..lowering.errors import LoweringError
from ..placement import Layout, Shard
from ..plan.ir import Edge, Plan, Tensor
from ..plan.launchable import parts

Carried = Mapping[MeshAxisName, tuple[str, ...]]
"""torchtitan's typed axes -> the plan's axes of more than one rank that they carry."""


def carried(plan: Plan) -> Carried:
    """Which of the plan's axes torchtitan's dp, cp and tp carry."""
    found = parts(plan)
    return {
        MeshAxisName.DP: found["dp_replicate"] + found["dp_shard"],
        MeshAxisName.CP: found["cp"],
        MeshAxisName.TP: found["tp"],
    }


def sharding_configs(plan: Plan) -> dict[str, ShardingConfig]:
    """Module fqn -> its states and boundary values in torchtitan's layouts.

    Raises:
        LoweringError: torchtitan has no word for one of the layouts.
    """
    axes = carried(plan)
    modules = dict.fromkeys([edge.module for edge in plan.edges] + [holder(fqn) for fqn in plan.by_fqn])
    return {module: _config(plan, module, axes) for module in modules}


def holder(fqn: str) -> str:
    """The module that holds a tensor."""
    return fqn.rpartition(".")[0]


def _config(plan: Plan, module: str, axes: Carried) -> ShardingConfig:
    states = {fqn.rpartition(".")[2]: tensor for fqn, tensor in plan.by_fqn.items() if holder(fqn) == module}
    inputs = {edge.port.removeprefix("input."): edge for edge in _inputs(plan, module)}
    output = plan.by_port.get((module, "output"))
    return ShardingConfig(
        state_shardings={name: state_layout(tensor, axes) for name, tensor in states.items()},
        in_src_shardings={name: value_layout(edge, edge.src, axes) for name, edge in inputs.items()} or None,
        in_dst_shardings={name: value_layout(edge, edge.dst, axes) for name, edge in inputs.items()} or None,
        out_src_shardings=value_layout(output, output.src, axes) if output else None,
        out_dst_shardings=value_layout(output, output.dst, axes) if output else None,
        local_map=LocalMapConfig(in_grad_placements=None) if _computes_locally(plan, module) else None,
    )


def _inputs(plan: Plan, module: str) -> list[Edge]:
    return [edge for edge in plan.edges if edge.module == module and edge.port != "output"]


def _computes_locally(plan: Plan, module: str) -> bool:
    """Whether the type checker must take the plan's word for what the module computes.

    It can follow a matrix product or a norm. It cannot follow a module that holds no weights,
    as attention does not, nor one that makes a sum out of whole inputs, as a lookup in a part
    of a table does.
    """
    output, inputs = plan.by_port.get((module, "output")), _inputs(plan, module)
    inside = any(edge.module.startswith(f"{module}.") for edge in plan.edges) if module else True
    if output is None or not inputs or inside:
        return False
    cut = {axis for edge in inputs for axes in edge.dst.dims for axis in axes}
    holds = any(holder(fqn) == module for fqn in plan.by_fqn)
    return not holds or any(axis not in cut for axis in output.src.partial if plan.mesh.size(axis) > 1)


def state_layout(tensor: Tensor, axes: Carried) -> SpmdLayout:
    """A parameter or buffer while computing.

    Over dp and cp every state is R there: FSDP sums what each rank finds.
    """
    kinds: dict[MeshAxisName, str] = {}
    for name, mine in axes.items():
        kind = _one_kind(tensor.layout, mine, tensor.fqn) if name is MeshAxisName.TP else "R"
        kinds[name] = "R" if tensor.kind == "buffer" and kind == "I" else kind
    return _layout(kinds, tensor.layout, axes)


def value_layout(edge: Edge, layout: Layout, axes: Carried) -> SpmdLayout:
    """A value at a module's boundary."""
    where = f"{edge.module or 'the model'} {edge.port}"
    return _layout({name: _one_kind(layout, mine, where) for name, mine in axes.items()}, layout, axes)


def _one_kind(layout: Layout, axes: Iterable[str], where: str) -> str:
    """What these axes do, all the same, to a value; R when there are none."""
    kinds = {layout.kind(axis) for axis in axes}
    if len(kinds) > 1:
        raise LoweringError([f"{where}: the axes {', '.join(axes)} are one axis of torchtitan, and differ here"])
    return kinds.pop() if kinds else "R"


def _layout(kinds: Mapping[MeshAxisName, str], layout: Layout, axes: Carried) -> SpmdLayout:
    """torchtitan's layout; where two of its axes cut one dim, with their order."""
    types = {name: _TYPES.get(kind) or spmd.S(int(kind[2:-1])) for name, kind in kinds.items()}
    cuts = [name for name, kind in kinds.items() if kind.startswith("S")]
    dims = [kinds[name] for name in cuts]
    if len(set(dims)) == len(dims):
        return SpmdLayout(types)
    spec = tuple(_entry(layout, dim, cuts, axes) for dim in range(len(layout.dims)))
    return SpmdLayout(types | dict.fromkeys(cuts, spmd.V), partition_spec=spec)


_TYPES = {"R": spmd.R, "I": spmd.I, "P": spmd.P}


def _entry(
    layout: Layout, dim: int, cuts: Iterable[MeshAxisName], axes: Carried
) -> MeshAxisName | tuple[MeshAxisName, ...] | None:
    """The torchtitan axes that cut one dim, outer first, as a partition spec says it."""
    mine = [name for name in cuts if layout.placement(axes[name][0]) == Shard(dim)]
    mine.sort(key=lambda name: layout.dims[dim].index(axes[name][0]))
    if not mine:
        return None
    return mine[0] if len(mine) == 1 else tuple(mine)
