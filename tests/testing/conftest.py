"""Specs of the small Llama, their plans, and modules of a plan's shapes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from meshlang.compiler import Request, compile
from meshlang.plan.ir import Plan
from meshlang.source import Source

if TYPE_CHECKING:
    from torch import nn

CARD = Path(__file__).parents[2] / "models" / "llama" / "card.toml"

HEAD = f'meshlang = 1\nmodel = "{CARD}#tiny"\n'

FSDP_TP = (
    HEAD
    + """\
include = ["preset:tensor_parallel", "preset:fsdp"]
[mesh]
dp = "rest"
tp = 2
"""
)

MakePlan = Callable[..., Plan]


@pytest.fixture(scope="session")
def make_plan() -> MakePlan:
    """Spec text, ranks -> its plan."""

    def make(text: str, ranks: int | None = None) -> Plan:
        return compile(Request(source=Source(name="spec.toml", text=text), ranks=ranks))

    return make


@pytest.fixture(scope="session")
def fsdp_tp_text() -> str:
    """A spec with dp = "rest" and tp = 2."""
    return FSDP_TP


@pytest.fixture(scope="session")
def fsdp_tp(make_plan: MakePlan) -> Plan:
    """Weights cut over tp = 2, and over dp = 2 at rest."""
    return make_plan(FSDP_TP, 4)


@pytest.fixture
def skeleton() -> Callable[..., nn.Module]:
    """Plan -> a module with the plan's parameters and nothing else."""
    return _skeleton


def _skeleton(plan: Plan, device: str = "meta") -> nn.Module:
    import torch
    from torch import nn

    root = nn.Module()
    for tensor in plan.tensors:
        if tensor.kind == "parameter":
            holder = root
            *path, name = tensor.fqn.split(".")
            for each in path:
                if not hasattr(holder, each):
                    holder.add_module(each, nn.Module())
                holder = holder.get_submodule(each)
            holder.register_parameter(name, nn.Parameter(torch.empty(tensor.shape, device=device)))
    return root
