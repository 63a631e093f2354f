"""The strategy and the schedule of another distribution, run on torchtitan; nothing in meshlang knows them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from installed import Meshlang

pytestmark = pytest.mark.gloo

STEPS = 3

SPEC = """\
meshlang = 1
model = "llama/tiny"
include = ["preset:whole_weights"]

[mesh]
{mesh}

[sizes]
batch = 4
seq = 64

[precision]
state = "{dtype}"
compute = "{dtype}"
reduce = "{dtype}"

[place]
batch = "whole"
{more}

[launch]
recipe = "meshlang_models.llama:tiny"
"""

MORE = {
    "one": ("dp = 1", ""),
    "packed_gather": ("cp = 2", 'seq = "cp"\n\n[strategy.packed_gather]\naxis = "cp"'),
    "sequential": ("pp = 2", '\n[pipeline]\nschedule = "sequential"\nmicrobatches = 4'),
}


def spec(name: str, dtype: str = "float32") -> str:
    """One rank, or two with one of the plugins."""
    mesh, more = MORE[name]
    return SPEC.format(mesh=mesh, more=more, dtype=dtype)


@pytest.fixture(scope="session")
def unsplit() -> dict[str, list[float]]:
    """Losses of one process, by what they are for."""
    return {}


def losses(meshlang: Meshlang, name: str) -> list[float]:
    """The loss of each step of a launch."""
    flags = f"--training.steps {STEPS} --metrics.log_freq 1 --metrics.disable-color-printing --dump_folder {name}"
    ran = meshlang(f"launch --device cpu -- {flags}", spec(name))
    assert ran.code == 0, ran.text[-3000:]
    return [float(found) for found in re.findall(r"step: +\d+ +loss: +([\d.]+)", ran.text)]


@pytest.mark.parametrize("name", ["packed_gather", "sequential"])
def test_it_trains_as_one_process(name: str, meshlang: Meshlang, unsplit: dict[str, list[float]]) -> None:
    """`check` is silent, `plan` names the plugin, and `launch` has the losses of one process, to 1e-5."""
    assert meshlang("check", spec(name)).text == ""
    assert name in meshlang("plan", spec(name)).text
    if not unsplit:
        unsplit["loss"] = losses(meshlang, "one")
    one, split = unsplit["loss"], losses(meshlang, name)
    assert len(one) == len(split) == STEPS
    assert one[-1] < one[0]
    assert max(abs(a - b) for a, b in zip(one, split, strict=True)) <= 1e-5


HELD = """\
import sys
from meshlang.compiler import Request, compile
from meshlang.testing.parity import differences
from meshlang.testing.ranks import RankPool

RECIPE = "meshlang_models.llama.config_registry:tiny"
STEPS = {
    "packed_gather": "meshlang.testing.parity:rank_titan_step",
    "sequential": "meshlang.testing.pipeline:rank_pipeline_step",
}

if __name__ == "__main__":
    with RankPool(2) as pool:
        for name, step in STEPS.items():
            plan = compile(Request.of(f"{name}.toml"))
            pool.run("meshlang.testing.parity:rank_titan_reference", RECIPE, plan, "one.pt", ranks=1)
            for rank, report in enumerate(pool.run(step, RECIPE, plan, "one.pt", {}, ranks=2)):
                print(name, rank, report.worst < 1e-12, report.misplaced, differences(plan, report.counts, rank))
"""


def test_a_step_is_that_of_one_rank(tmp_path: Path, site: Path) -> None:
    """In float64 loss and every gradient are those of one rank, and only what the plan lists is sent."""
    for name in ("packed_gather", "sequential"):
        (tmp_path / f"{name}.toml").write_text(spec(name, "float64"))
    (tmp_path / "held.py").write_text(HELD)
    done = subprocess.run(
        [sys.executable, "held.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [
        f"{name} {rank} True () []" for name in ("packed_gather", "sequential") for rank in (0, 1)
    ], done.stderr[-3000:]
