"""The strategy and the schedule of another distribution, run on torchtitan; nothing in meshlang knows them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from installed import Meshlang

from meshlang.compiler import Request, compile
from meshlang.plan.data import to_data
from meshlang.plan.ir import Plan
from meshlang.registry import Plugins, Registry
from meshlang.source import Source
from meshlang.testing.parity import differences
from meshlang.testing.ranks import RankPool
from meshlang.testing.trained import free_port

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


@pytest.fixture(scope="module")
def unsplit(pool: RankPool, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Losses of one process, without a plugin."""
    data, folder = to_data(plan("one")), str(tmp_path_factory.mktemp("one"))
    (logged,) = pool.run("meshlang.testing.trained:rank_train", data, free_port(), folder, STEPS, STEPS, ranks=1)
    return [loss for loss, _ in logged.values()]


def plan(name: str, dtype: str = "float32") -> Plan:
    """The plan of `spec`, by the plugins that are within reach now."""
    plugins = Plugins(strategies=Registry("meshlang.strategies"), schedules=Registry("meshlang.schedules"))
    return compile(Request(source=Source(name=f"{name}.toml", text=spec(name, dtype)), plugins=plugins))


def losses(meshlang: Meshlang, name: str) -> list[float]:
    """The loss of each step of a launch."""
    flags = f"--training.steps {STEPS} --metrics.log_freq 1 --metrics.disable-color-printing --dump_folder {name}"
    ran = meshlang(f"launch --device cpu -- {flags}", spec(name))
    assert ran.code == 0, ran.text[-3000:]
    return [float(found) for found in re.findall(r"step: +\d+ +loss: +([\d.]+)", ran.text)]


@pytest.mark.parametrize("name", ["packed_gather", "sequential"])
def test_it_trains_as_one_process(name: str, meshlang: Meshlang, unsplit: list[float]) -> None:
    """`check` is silent, `plan` names the plugin, and `launch` has the losses of one process, to 1e-5."""
    assert meshlang("check", spec(name)).text == ""
    assert name in meshlang("plan", spec(name)).text
    split = losses(meshlang, name)
    assert len(unsplit) == len(split) == STEPS
    assert unsplit[-1] < unsplit[0]
    assert max(abs(a - b) for a, b in zip(unsplit, split, strict=True)) <= 1e-5


RECIPE = "meshlang_models.llama.config_registry:tiny"


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("packed_gather", "meshlang.testing.parity:rank_titan_step"),
        ("sequential", "meshlang.testing.pipeline:rank_pipeline_step"),
    ],
)
def test_a_step_is_that_of_one_rank(
    name: str, step: str, pool: RankPool, tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64 loss and every gradient are those of one rank, and only what the plan lists is sent."""
    monkeypatch.syspath_prepend(str(site))
    split, path = plan(name, "float64"), str(tmp_path / "one.pt")
    pool.run("meshlang.testing.parity:rank_titan_reference", RECIPE, plan("one", "float64"), path, ranks=1)
    reports = pool.run("with_site:rank_with", str(site), step, (RECIPE, split, path, {}), ranks=2)
    for rank, report in enumerate(reports):
        assert report.worst < 1e-12
        assert report.misplaced == ()
        assert differences(split, report.counts, rank) == []
