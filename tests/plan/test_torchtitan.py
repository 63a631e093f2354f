"""Plans of torchtitan's llama3 and qwen3 against torchtitan's own sharding configs, over tp."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import spmd_types as spmd
from torchtitan.distributed.parallel_dims import MeshAxisName, SpmdLayout
from torchtitan.models.llama3 import llama3_configs
from torchtitan.models.llama3.sharding import set_llama3_sharding_config
from torchtitan.models.qwen3 import qwen3_configs
from torchtitan.models.qwen3.sharding import set_qwen3_sharding_config
from torchtitan.protocols.sharding import ShardingConfig

from meshlang.compiler import Request, compile
from meshlang.plan.ir import Plan
from meshlang.source import Source

FLAVORS = ("llama3/debugmodel", "llama3/8B", "llama3/70B", "qwen3/debugmodel", "qwen3/0.6B", "qwen3/32B")
CASES = [(flavor, sp) for flavor in FLAVORS for sp in (False, True)]
each_case = pytest.mark.parametrize(
    ("flavor", "sp"), CASES, ids=[f"{flavor}-{'sp' if sp else 'tp'}" for flavor, sp in CASES]
)

MODELS = Path(__file__).parents[2] / "models"

SPEC = """
meshlang = 1
model = "{card}#{flavor}"
include = [{presets}]
[mesh]
dp = "rest"
tp = 4
[sizes]
batch = 8
seq = 2048
"""


@cache
def plan(flavor: str, sp: bool) -> Plan:
    """Tensor parallel over four ranks, with or without sequence parallel."""
    names = ["tensor_parallel", "fsdp", *(["sequence_parallel"] if sp else [])]
    presets = ", ".join(f'"preset:{name}"' for name in names)
    card, _, size = flavor.partition("/")
    text = SPEC.format(card=MODELS / card / "card.toml", flavor=size, presets=presets)
    return compile(Request(source=Source(name="spec.toml", text=text), ranks=8))


@cache
def configs(flavor: str, sp: bool) -> dict[str, ShardingConfig]:
    """Module -> torchtitan's sharding config, for each that has one."""
    card, _, size = flavor.partition("/")
    if card == "llama3":
        model = llama3_configs[size](attn_backend="flex")
        set_llama3_sharding_config(model, enable_sp=sp)
    else:
        model = qwen3_configs[size](attn_backend="flex")
        set_qwen3_sharding_config(model, enable_sp=sp, enable_ep=False)
    found = {fqn: config.sharding_config for fqn, config in _inside("", model) if config.sharding_config is not None}
    return {place: config for fqn, config in found.items() for place in _built(fqn)}


def _built(fqn: str) -> tuple[str, ...]:
    """The modules that a config builds: one of its own name, but for the norm of queries and keys."""
    module, _, name = fqn.rpartition(".")
    return (f"{module}.q_norm", f"{module}.k_norm") if name == "qk_norm" else (fqn,)


def _inside(fqn: str, config: Any) -> Iterator[tuple[str, Any]]:
    """Every module config below one, by the fqn of the module that it builds."""
    for name in getattr(config, "__dataclass_fields__", {}):
        value = getattr(config, name)
        below = f"{fqn}.{name}" if fqn else name
        many = {f"{below}.{i}": each for i, each in enumerate(value)} if isinstance(value, list) else {below: value}
        for place, each in many.items():
            if hasattr(each, "sharding_config"):
                yield place, each
                yield from _inside(place, each)


def kind(layout: SpmdLayout, dims: int) -> str:
    """What torchtitan does to a value over tp, in the plan's letters."""
    found = layout.per_axis_spmd_types()[MeshAxisName.TP]
    if isinstance(found, spmd.Shard):
        return f"S({found.dim % dims})"
    return {spmd.R: "R", spmd.I: "I", spmd.P: "P"}[found]


@dataclass(frozen=True)
class Side:
    """One side of one port, as torchtitan says it."""

    module: str
    port: str
    side: str
    layout: SpmdLayout


def sides(module: str, config: ShardingConfig) -> Iterator[Side]:
    """Every side that torchtitan speaks of; an input that it does not move is the same on both."""
    before, after = config.in_src_shardings or {}, config.in_dst_shardings or {}
    for name, layout in before.items():
        # torchtitan names the argument of a norm `input`; torch's forward calls it `x`
        port = "input.x" if module.endswith("norm") else f"input.{name}"
        yield Side(module, port, "src", layout)
        yield Side(module, port, "dst", after.get(name, layout))
    source, target = config.out_src_shardings, config.out_dst_shardings
    if isinstance(source, SpmdLayout):
        yield Side(module, "output", "src", source)
        yield Side(module, "output", "dst", target or source)


@each_case
def test_weights_are_placed_as_by_torchtitan(flavor: str, sp: bool) -> None:
    """Each parameter's kind over tp is torchtitan's: its cut, and whether its gradient is a sum."""
    ours = plan(flavor, sp)
    theirs = {
        f"{module}.{name}": layout
        for module, config in configs(flavor, sp).items()
        for name, layout in config.state_shardings.items()
    }
    parameters = [tensor for tensor in ours.tensors if tensor.kind == "parameter"]
    assert parameters
    assert {t.fqn: t.layout.kind("tp") for t in parameters} == {
        t.fqn: kind(theirs[t.fqn], len(t.dims)) for t in parameters
    }


@each_case
def test_gradients_are_sums_where_torchtitan_says(flavor: str, sp: bool) -> None:
    """A parameter's gradient is a sum over tp exactly where torchtitan types it R.

    Norms over the numbers of a head are shared by all heads, and tp cuts these with or without
    sequence parallel; norms over the model's width see a part of the tokens with it.
    """
    summed = {t.fqn for t in plan(flavor, sp).tensors if t.kind == "parameter" and "tp" in t.grad}
    theirs = {
        f"{module}.{name}"
        for module, config in configs(flavor, sp).items()
        for name, layout in config.state_shardings.items()
        if layout.per_axis_spmd_types()[MeshAxisName.TP] is spmd.R
    }
    assert summed == {name for name in theirs if name in plan(flavor, sp).by_fqn and not name.endswith("rope.cache")}
    of_heads = {"q_norm", "k_norm"} if flavor.startswith("qwen3") else set()
    of_tokens = {"attention_norm", "ffn_norm", "norm"} if sp else set()
    assert {name.split(".")[-2] for name in summed} == of_heads | of_tokens


@each_case
def test_buffers_are_placed_as_by_torchtitan(flavor: str, sp: bool) -> None:
    """The rope table is whole over tp; it has no gradient, so R and I are one."""
    ours = [tensor for tensor in plan(flavor, sp).tensors if tensor.kind == "buffer"]
    theirs = configs(flavor, sp)
    assert ours
    for tensor in ours:
        module, _, name = tensor.fqn.rpartition(".")
        assert kind(theirs[module].state_shardings[name], len(tensor.dims)) in ("R", "I")
        assert tensor.layout.kind("tp") in ("R", "I")


@each_case
def test_values_cross_boundaries_as_by_torchtitan(flavor: str, sp: bool) -> None:
    """Where torchtitan speaks of a side of a port, its kind over tp is the plan's: S, P, R and I."""
    edges = plan(flavor, sp).by_port
    for module, config in configs(flavor, sp).items():
        for each in sides(module, config):
            edge = edges[module, each.port]
            assert getattr(edge, each.side).kind("tp") == kind(each.layout, len(edge.names)), each


@each_case
def test_values_move_only_where_torchtitan_moves_them(flavor: str, sp: bool) -> None:
    """The ports where the plan redistributes over tp are those where torchtitan does."""
    theirs: dict[tuple[str, str], list[str]] = {}
    for module, config in configs(flavor, sp).items():
        for each in sides(module, config):
            theirs.setdefault((module, each.port), []).append(kind(each.layout, 4))
    ours = {(edge.module, edge.port) for edge in plan(flavor, sp).edges if edge.src.kind("tp") != edge.dst.kind("tp")}
    assert ours == {port for port, (src, dst) in theirs.items() if src != dst}
    assert len(ours) > 4
