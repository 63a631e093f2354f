"""Our own strategies and schedules pass the laws that anyone's pass."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from meshlang_strategies.dualpipev import DualPipeV
from meshlang_strategies.gpipe import GPipe
from meshlang_strategies.interleaved_1f1b import Interleaved1F1B
from meshlang_strategies.interleaved_zero_bubble import InterleavedZeroBubble
from meshlang_strategies.one_f_one_b import OneFOneB
from meshlang_strategies.zbv import ZBV

from meshlang.compiler import Request
from meshlang.registry import Plugins, Registry
from meshlang.source import Source
from meshlang.testing import contract

ROOT = Path(__file__).parents[2]

SCHEDULES: dict[str, type[Any]] = {
    "gpipe": GPipe,
    "1f1b": OneFOneB,
    "interleaved_1f1b": Interleaved1F1B,
    "interleaved_zero_bubble": InterleavedZeroBubble,
    "zbv": ZBV,
    "dualpipev": DualPipeV,
}

STRATEGIES: dict[str, type[Any]] = {}

PLUGINS = Plugins(
    strategies=Registry("meshlang.strategies", extra=STRATEGIES),
    schedules=Registry("meshlang.schedules", extra=SCHEDULES),
)

PIPELINE = f"""\
meshlang = 1
model = "{ROOT}/models/llama/card.toml#tiny"
include = ["preset:fsdp", "preset:whole_weights"]

[mesh]
pp = 2
dp = "rest"

[sizes]
batch = 64
seq = 128

[pipeline]
microbatches = 8
schedule = """


def _case(name: str) -> contract.Case:
    source = Source(name=f"{name}.toml", text=f'{PIPELINE}"{name}"\n')
    return contract.Case(name=name, request=Request(source=source, ranks=4, plugins=PLUGINS))


CASES = [_case(name) for name in SCHEDULES]


@pytest.mark.parametrize(("law", "case"), contract.params(CASES))
def test_contract(law: contract.Law, case: contract.Case) -> None:
    """Each plugin passes each law."""
    law(case)


@pytest.mark.parametrize(("group", "classes"), [("meshlang.schedules", SCHEDULES), ("meshlang.strategies", STRATEGIES)])
def test_every_plugin_of_ours_has_a_case(group: str, classes: dict[str, type[Any]]) -> None:
    """The entry points that meshlang installs are the plugins of this table."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"].get(group, {})
    assert points == {name: f"{each.__module__}:{each.__name__}" for name, each in classes.items()}
