"""Plans of a small Llama."""

from collections.abc import Callable
from pathlib import Path

import pytest

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
