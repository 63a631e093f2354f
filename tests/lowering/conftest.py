"""Plans of a small Llama, and a model of their names."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from meshlang.compiler import Request, compile
from meshlang.plan.ir import Plan
from meshlang.source import Source

CARD = Path(__file__).parents[2] / "models" / "llama" / "card.toml"

SPEC = f"""\
meshlang = 1
model = "{CARD}#tiny"
include = ["preset:tensor_parallel", "preset:sequence_parallel", "preset:fsdp"]
[mesh]
dp = 2
tp = 2
[sizes]
batch = 8
seq = 64
"""


@pytest.fixture(scope="session")
def make_plan() -> Callable[[str], Plan]:
    """Spec text -> its plan."""
    return lambda text: compile(Request(source=Source(name="spec.toml", text=text)))


@pytest.fixture(scope="session")
def plan(make_plan: Callable[[str], Plan]) -> Plan:
    """Weights and sequence cut over tp = 2, weights stored over dp = 2."""
    return make_plan(SPEC)


@pytest.fixture
def model(plan: Plan) -> nn.Module:
    """Modules of the plan's names that hold its tensors and take its arguments; they compute nothing."""
    root = Takes()
    for edge in plan.edges:
        _module(root, edge.module)
    for tensor in plan.tensors:
        holder, _, name = tensor.fqn.rpartition(".")
        empty = torch.empty(tensor.shape, device="meta")
        if tensor.kind == "buffer":
            _module(root, holder).register_buffer(name, empty)
        else:
            _module(root, holder).register_parameter(name, nn.Parameter(empty))
    return root


class Takes(nn.Module):
    """Takes every argument that a Llama's modules take."""

    def forward(
        self, tokens: object, input: object, x: object, x_BLD: object, q_BLNH: object, k_BLNH: object, v_BLNH: object
    ) -> None:
        """Nothing."""


def _module(root: nn.Module, fqn: str) -> nn.Module:
    for name in fqn.split(".") if fqn else []:
        if not hasattr(root, name):
            root.add_module(name, Takes())
        root = root.get_submodule(name)
    return root
