"""Training over a cut sequence, started as a user starts it."""

import os
import re
import subprocess
import sys
from pathlib import Path

from meshlang.compiler import Request, compile
from meshlang.plan.data import to_data
from meshlang.testing.ranks import RankPool
from meshlang.testing.trained import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "llama_tiny_context_parallel.toml"

STEPS = 3


def changes(cp: int) -> list[str]:
    """What is set in the example: as many ranks on cp, and one on dp."""
    return [f"mesh.cp={cp}", "mesh.dp=1", f"launch.ranks={cp}", "sizes.batch=4"]


def one_rank(ranks: RankPool, folder: Path) -> list[float]:
    """The loss of each step of the example on one rank that runs already."""
    data = to_data(compile(Request.of(EXAMPLE, sets=tuple(changes(1)), launch=True)))
    target = "meshlang.testing.trained:rank_train"
    (logged,) = ranks.run(target, data, free_port(), str(folder), STEPS, STEPS, ranks=1)
    return [loss for loss, _ in logged.values()]


def launched(folder: Path, *, cp: int) -> list[float]:
    """The loss of each step that a launch of the example logs."""
    sets = [f"--set={change}" for change in changes(cp)]
    flags = ["--training.steps", str(STEPS), "--metrics.log_freq", "1", "--dump_folder", str(folder)]
    done = subprocess.run(
        [sys.executable, "-c", "from meshlang.cli import main; main()", "launch", str(EXAMPLE), *sets, "--", *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    return [float(found) for found in re.findall(r"step: +\d+ +loss: +([\d.]+)", plain)]


def test_a_ring_trains_as_one_rank(ranks: RankPool, tmp_path: Path) -> None:
    """The example on a ring of two has the losses of one rank, to 1e-5, step after step."""
    one, ring = one_rank(ranks, tmp_path / "one"), launched(tmp_path / "ring", cp=2)
    assert len(one) == len(ring) == STEPS
    assert one[-1] < one[0]
    assert max(abs(a - b) for a, b in zip(one, ring, strict=True)) <= 1e-5
