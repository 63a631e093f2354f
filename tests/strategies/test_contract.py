"""Our own strategies and schedules pass the laws that anyone's pass."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from meshlang.compiler import Request
from meshlang.registry import Plugins, Registry
from meshlang.source import Source
from meshlang.testing import contract

ROOT = Path(__file__).parents[2]

POINTS: dict[str, dict[str, str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]

HEAD = f"""\
meshlang = 1
model = "{ROOT}/models/llama/card.toml#tiny"
include = ["preset:fsdp", "preset:whole_weights"]

[sizes]
batch = 64
seq = 128
"""

CONTEXT = f"""{HEAD}
[mesh]
dp = 2
cp = 2

[place]
seq = "cp"

[strategy.NAME]
axis = "cp"
"""

BLOCKS = f"""{HEAD.replace("llama/card.toml", "block_diffusion/card.toml")}
[mesh]
dp = 2
block = 2

[strategy.NAME]
axis = "block"
block_size = 16
"""

PIPELINE = f"""{HEAD}
[mesh]
pp = 2
dp = 2

[pipeline]
schedule = "NAME"
microbatches = 8
"""

FILE = PIPELINE.replace("microbatches = 8", f'microbatches = 2\nfile = "{ROOT}/tests/strategies/v.csv"')

#: Plugin -> a spec that uses it and has no findings.
SPECS = {
    "1f1b": PIPELINE,
    "all_gather_attention": CONTEXT,
    "bitpipe": PIPELINE,
    "bsipipe": PIPELINE + "subsequences = 4\n",
    "chimera": PIPELINE,
    "combined_context": BLOCKS,
    "csbp": BLOCKS,
    "csv": FILE,
    "dualpipe": PIPELINE,
    "dualpipev": PIPELINE,
    "gpipe": PIPELINE,
    "interleaved_1f1b": PIPELINE,
    "interleaved_zero_bubble": PIPELINE,
    "ring_attention": CONTEXT,
    "seq1f1b": PIPELINE + "subsequences = 4\n",
    "seq1f1b_interleaved": PIPELINE + "subsequences = 4\n",
    "seqv": PIPELINE + "subsequences = 4\n",
    "ulysses": CONTEXT,
    "zbv": PIPELINE,
}


def _classes(group: str) -> dict[str, type[Any]]:
    """The classes of the entry points that meshlang brings, whether or not it is installed."""
    parts = {name: value.partition(":") for name, value in POINTS.get(group, {}).items()}
    return {name: getattr(import_module(module), cls) for name, (module, _, cls) in parts.items()}


PLUGINS = Plugins(
    strategies=Registry("meshlang.strategies", extra=_classes("meshlang.strategies")),
    schedules=Registry("meshlang.schedules", extra=_classes("meshlang.schedules")),
)

NAMES = sorted({*PLUGINS.strategies.extra, *PLUGINS.schedules.extra})


def _case(name: str) -> contract.Case:
    source = Source(name=f"{name}.toml", text=SPECS[name].replace("NAME", name))
    return contract.Case(name=name, request=Request(source=source, plugins=PLUGINS))


@pytest.mark.parametrize(("law", "case"), contract.params(_case(name) for name in NAMES if name in SPECS))
def test_contract(law: contract.Law, case: contract.Case) -> None:
    """Each plugin passes each law."""
    law(case)


def test_every_plugin_has_a_spec() -> None:
    """The plugins that meshlang brings are those that the laws are held against."""
    assert sorted(SPECS) == NAMES
