"""A strategy and a schedule of another distribution, installed by pip and found by name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from installed import Meshlang, Ran

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CARD = "./card.toml"

SPEC = f"""\
meshlang = 1
model = "{CARD}#tiny"
include = ["preset:fsdp", "preset:whole_weights"]

[mesh]
dp = 4

[strategy.persist_small]
axis = "dp"
below = 200
"""

PACKED = f"""\
meshlang = 1
model = "{CARD}#tiny"
include = ["preset:whole_weights"]

[mesh]
cp = 2

[sizes]
batch = 4
seq = 64

[place]
batch = "whole"
seq = "cp"

[strategy.packed_gather]
axis = "cp"
"""

PIPELINE = f"""\
meshlang = 1
model = "{CARD}#tiny"
include = ["preset:fsdp", "preset:whole_weights"]

[mesh]
pp = 2
dp = 2

[pipeline]
schedule = "sequential"
microbatches = 4
"""


def test_the_name_is_found(meshlang: Meshlang) -> None:
    """A spec that uses the strategy by its name has no findings."""
    assert meshlang("check", SPEC) == Ran(0, "")


def test_the_plan_is_rewritten(meshlang: Meshlang) -> None:
    """In the plan small parameters are whole over the axis, large ones stored, and the strategy is named."""
    ran = meshlang("plan --json", SPEC)
    assert ran.code == 0, ran.text
    code = (
        "import sys; from meshlang.plan.data import from_json; from meshlang.testing import assert_placements;"
        "plan = from_json(sys.stdin.read());"
        "assert_placements(plan, {'norm': {'dp': 'R'}, 'layers.*.ffn_norm': {'dp': 'R'}, 'lm_head': {'dp': 'stored'}});"
        "print([(use.name, use.axis, dict(use.options)) for use in plan.strategies])"
    )
    read = subprocess.run([sys.executable, "-c", code], input=ran.text, capture_output=True, text=True, check=False)
    assert read.stdout == "[('persist_small', 'dp', {'below': 200, 'of': 'elements'})]\n", read.stderr


def test_fields_are_checked(meshlang: Meshlang) -> None:
    """An unknown key, a wrong type and an unknown word are findings at their places."""
    text = SPEC.replace("below = 200", 'belwo = 200\nof = "element"').replace('axis = "dp"', "axis = 1")
    ran = meshlang("check --format short", text)
    assert ran.code == 1
    lines = [line.split(": ")[:2] for line in ran.text.splitlines()]
    assert lines == [
        ["spec.toml:9:8", "error[wrong-type]"],
        ["spec.toml:10:1", "error[unknown-key]"],
        ["spec.toml:11:6", "error[bad-value]"],
    ]


def test_its_own_findings_have_places(meshlang: Meshlang) -> None:
    """What the strategy's `check` finds stands at the value of the key that it is about."""
    ran = meshlang("check --format short", SPEC.replace("200", "7"))
    assert ran.text == (
        "spec.toml:10:9: error[decides-nothing]: no parameter has less than 7 elements; the smallest has 128\n"
    )
    ran = meshlang("check --format short", SPEC.replace('axis = "dp"', 'axis = "cp"'))
    assert ran.text == "spec.toml:9:8: error[unknown-axis]: `cp` is no axis of the mesh\n"


def test_a_schedule_is_found(meshlang: Meshlang) -> None:
    """The schedule is found by its name, and a field without a default is a required key."""
    assert meshlang("check", PIPELINE) == Ran(0, "")
    ran = meshlang("check --format short", PIPELINE.replace("microbatches = 4", "chunks = 2"))
    assert ran.code == 1
    assert "error[missing-key]: `[pipeline]` lacks `microbatches`" in ran.text


def test_without_it_the_name_is_unknown(tmp_path: Path, meshlang: Meshlang, site: Path) -> None:
    """A near name is a finding that offers the installed one."""
    ran = meshlang("check", SPEC.replace("persist_small", "persist_smal"))
    assert "error[unknown-strategy]: no strategy `persist_smal` is installed" in ran.text
    assert "help: `persist_small` is near" in ran.text


def test_a_name_claimed_twice_names_both(meshlang: Meshlang, tmp_path: Path) -> None:
    """Where a second distribution brings the same name, both are named, at the place that asks for it."""
    other = tmp_path / "other"
    info = other / "rival-2.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rival\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text("[meshlang.strategies]\npersist_small = rival.small:Small\n")
    ran = meshlang("check --format short", SPEC, other)
    assert ran.code == 1
    assert ran.text.startswith("spec.toml:8:11: error[plugin-broken]: `persist_small` is claimed by")
    assert "meshlang-example (meshlang_example.persist_small:PersistSmall)" in ran.text
    assert "rival (rival.small:Small)" in ran.text


CONTRACT = """\
import pytest
from meshlang.compiler import Request
from meshlang.testing import contract

CASES = [
    contract.Case(name="persist_small", request=Request.of("persist_small.toml")),
    contract.Case(name="packed_gather", request=Request.of("packed_gather.toml")),
    contract.Case(name="sequential", request=Request.of("sequential.toml")),
]

@pytest.mark.parametrize(("law", "case"), contract.params(CASES))
def test_contract(law, case):
    law(case)
"""


def test_it_passes_the_contract(tmp_path: Path, site: Path) -> None:
    """Its author runs the laws with a spec of each plugin and a test of two lines."""
    shutil.copy(ROOT / "models" / "llama" / "card.toml", tmp_path)
    (tmp_path / "persist_small.toml").write_text(SPEC)
    (tmp_path / "packed_gather.toml").write_text(PACKED)
    (tmp_path / "sequential.toml").write_text(PIPELINE)
    (tmp_path / "test_contract.py").write_text(CONTRACT)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (site, ROOT)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
