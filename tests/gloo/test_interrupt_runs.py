"""Runs that are interrupted under `--on-interrupt checkpoint`: saved after their step, and gone on with."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from meshlang.compiler import Request, compile
from meshlang.plan.data import to_data
from meshlang.source import Source
from meshlang.testing.launched import SPEC, Launched
from meshlang.testing.ranks import RankPool
from meshlang.testing.trained import free_port

LONG = 100_000
OPTIONS = ["--on-interrupt", "checkpoint"]
#: Two pipelines through each other, on our own executor: one rank's stages at each end, two subsequences.
PROGRAM = """
meshlang = 1
model = "llama/tiny"
mesh = { pp = 2 }
sizes = { batch = 4, seq = 64 }
precision = { state = "float32", compute = "float32", reduce = "float32" }
place = { batch = "whole", heads = "whole", kv_heads = "whole", mlp = "whole", vocab = "whole" }
pipeline = { schedule = "bsipipe", microbatches = 2, subsequences = 2, chunks = 1 }

[launch]
recipe = "meshlang_models.llama:tiny"
"""


def whole(ranks: RankPool, spec: str, steps: int, folder: Path) -> list[tuple[int, float]]:
    """(step, loss as it is logged) of a run that nobody interrupts, on two ranks that run already."""
    data = to_data(compile(Request(source=Source(name="whole.toml", text=spec), launch=True)))
    target = "meshlang.testing.trained:rank_train"
    logged, _ = ranks.run(target, data, free_port(), str(folder), steps, 1000, ranks=2)
    return [(step, float(f"{loss:.5f}")) for step, (loss, _) in logged.items()]


@pytest.mark.parametrize("spec", [SPEC, PROGRAM], ids=["data ranks", "two pipelines"])
def test_ctrl_c_saves_the_step_and_a_later_run_goes_on(spec: str, ranks: RankPool, tmp_path: Path) -> None:
    """The interrupted run and the one that goes on from it have the losses of a run that nobody interrupted."""
    with Launched(tmp_path, steps=LONG, spec=spec, interval=LONG, options=OPTIONS, name="first") as run:
        run.at(2)
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 128 + signal.SIGINT, run.text()
        asked, ended = run.said()
        assert asked.startswith("meshlang: SIGINT: the run ends after this step, with a checkpoint; ")
        match = re.fullmatch(r"meshlang: SIGINT ended the run after step (\d+); last whole checkpoint: (.*)", ended)
        assert match is not None, ended
        step = int(match[1])
        assert run.losses()[-1][0] == step
        assert match[2] == str(run.dump / "checkpoint" / f"step-{step}")
        assert run.ranks() == {}
        begun = run.losses()
    with Launched(tmp_path, steps=step + 2, spec=spec, interval=LONG, name="second") as run:
        assert run.end() == 0, run.text()
        resumed = run.losses()
    assert begun + resumed == whole(ranks, spec, step + 2, tmp_path / "whole")


def test_a_run_that_saves_nothing_cannot_be_asked_to(tmp_path: Path) -> None:
    """Without checkpoints `--on-interrupt checkpoint` is refused, before a rank starts."""
    with Launched(tmp_path, steps=1, options=[*OPTIONS, "--set", 'launch.set={"checkpoint.load_only"=true}']) as run:
        assert run.end() == 2
        assert "meshlang: --on-interrupt checkpoint: this run saves none" in run.text()
