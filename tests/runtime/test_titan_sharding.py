"""A plan in torchtitan's words, held against what torchtitan's own llama3 says for the same mesh."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import spmd_types as spmd
from torchtitan.distributed.parallel_dims import MeshAxisName, SpmdLayout
from torchtitan.models.llama3 import model_registry
from torchtitan.models.llama3.sharding import set_llama3_sharding_config
from torchtitan.protocols.module import Module
from torchtitan.protocols.sharding import ShardingConfig

from meshlang.compiler import Request, compile
from meshlang.lowering.errors import LoweringError
from meshlang.placement import Layout
from meshlang.plan.ir import Plan
from meshlang.runtime.sharding import sharding_configs
from meshlang.source import Source

CARD = Path(__file__).parents[2] / "models" / "llama3" / "card.toml"
DP, CP, TP = MeshAxisName.DP, MeshAxisName.CP, MeshAxisName.TP

SPEC = f"""\
meshlang = 1
model = "{CARD}#debugmodel"
include = ["preset:tensor_parallel", "preset:fsdp"]
[mesh]
dp = 2
tp = 2
[sizes]
batch = 8
seq = 64
"""


def planned(*presets: str) -> Plan:
    """The plan of SPEC with more presets."""
    text = SPEC.replace('"preset:fsdp"', ", ".join(f'"preset:{name}"' for name in ("fsdp", *presets)))
    return compile(Request(source=Source(name="spec.toml", text=text)))


@pytest.fixture(scope="module")
def theirs() -> Callable[[bool], dict[str, ShardingConfig]]:
    """torchtitan's sharding configs of its llama3 debug model, with or without sequence parallelism."""

    def read(enable_sp: bool) -> dict[str, ShardingConfig]:
        config = model_registry("debugmodel", attn_backend="flex").model
        set_llama3_sharding_config(config, enable_sp=enable_sp)
        found = config.traverse(Module.Config)
        return {name: part.sharding_config for name, part, _, _ in found if part.sharding_config is not None}

    return read


def over_tp(layout: SpmdLayout | None, dims: int = 3) -> Any:
    """What tp does; a cut of the last dim counted from the front."""
    if layout is None:
        return None
    kind = layout.per_axis_spmd_types()[TP]
    return spmd.S(kind.dim % dims) if isinstance(kind, spmd.Shard) else kind


@pytest.mark.parametrize("sequence", [True, False])
def test_plan_says_what_torchtitan_says(sequence: bool, theirs: Callable[[bool], dict[str, ShardingConfig]]) -> None:
    """Every state and every boundary that torchtitan's own llama3 lays out has the same layout over tp in the plan.

    Where torchtitan is silent on one side of a boundary, nothing is moved there.
    """
    ours = sharding_configs(planned(*(["sequence_parallel"] if sequence else [])))
    wrong = []
    for fqn, wanted in theirs(sequence).items():
        found = ours[fqn]
        for name, layout in wanted.state_shardings.items():
            if name in found.state_shardings and over_tp(found.state_shardings[name], 2) != over_tp(layout, 2):
                wrong.append(f"{fqn}.{name}: {found.state_shardings[name]}, torchtitan {layout}")
        for side in ("in_src_shardings", "in_dst_shardings"):
            for name, layout in (getattr(wanted, side) or {}).items():
                mine = (getattr(found, side) or {}).get("x" if "norm" in fqn else name)
                if over_tp(mine) != over_tp(layout):
                    wrong.append(f"{fqn} {side} {name}: {mine}, torchtitan {layout}")
        for side in ("out_src_shardings", "out_dst_shardings"):
            layout = getattr(wanted, side)
            if layout is not None and over_tp(getattr(found, side)) != over_tp(layout):
                wrong.append(f"{fqn} {side}: {getattr(found, side)}, torchtitan {layout}")
    assert wrong == []


def test_weights_are_summed_over_data_and_context() -> None:
    """Over dp and cp every state is R: what each rank finds of its gradient is a term."""
    for config in sharding_configs(planned()).values():
        for layout in config.state_shardings.values():
            assert (layout.axis_types[DP], layout.axis_types[CP]) == (spmd.R, spmd.R)


def test_norm_weight_is_summed_only_where_the_sequence_is_cut() -> None:
    """A norm's weight is R over tp under sequence parallelism, and I without: the gradient is then whole already."""
    name = "layers.0.attention_norm"
    kinds = [sharding_configs(planned(*more))[name].state_shardings["weight"] for more in ([], ["sequence_parallel"])]
    assert [over_tp(kind, 1) for kind in kinds] == [spmd.I, spmd.R]


def test_two_axes_on_one_dim_have_an_order() -> None:
    """Where two of torchtitan's axes cut one dim, a partition spec says which is outside."""
    plan = planned("sequence_parallel")
    roles = (("dp", "context"), ("tp", "tensor"))
    edges = tuple(
        replace(edge, **{side: _sequence_cut(getattr(edge, side)) for side in ("src", "dst")}) for edge in plan.edges
    )
    layout = sharding_configs(replace(plan, roles=roles, edges=edges))["layers.0"].out_dst_shardings
    assert layout is not None
    assert layout.partition_spec == (None, (CP, TP), None)
    assert (layout.axis_types[CP], layout.axis_types[TP]) == (spmd.V, spmd.V)


def _sequence_cut(layout: Layout) -> Layout:
    """The layout with the sequence cut by "dp" instead of the batch."""
    first, second, *rest = layout.dims
    return replace(layout, dims=(tuple(a for a in first if a != "dp"), ("dp", *second), *rest))


def test_axes_that_are_one_to_torchtitan_act_alike() -> None:
    """Two data axes that differ in one layout are refused, with the place."""
    plan = planned()
    mesh = replace(plan.mesh, axes=(replace(plan.mesh.axes[0], name="more"), *plan.mesh.axes))
    with pytest.raises(LoweringError, match=r"the axes more, dp are one axis of torchtitan"):
        sharding_configs(replace(plan, mesh=mesh, roles=(("more", "data"), *plan.roles)))


@pytest.mark.parametrize("module", ["tok_embeddings", "layers.0.attention.inner_attention"])
def test_opaque_module_computes_on_local_tensors(module: str) -> None:
    """Type checking takes the plan's word for a lookup in a part of a table, and for attention."""
    configs = sharding_configs(planned())
    assert configs[module].local_map is not None
    assert configs["layers.0.attention.wo"].local_map is None
