"""Training over a cut sequence, started as a user starts it."""

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "llama_tiny_context_parallel.toml"

STEPS = 3


def losses(folder: Path, *, cp: int) -> list[float]:
    """The loss of each step of the example with as many ranks on cp, and one on dp."""
    changes = [f"--set={change}" for change in (f"mesh.cp={cp}", "mesh.dp=1", f"launch.ranks={cp}", "sizes.batch=4")]
    flags = ["--training.steps", str(STEPS), "--metrics.log_freq", "1", "--dump_folder", str(folder)]
    done = subprocess.run(
        [sys.executable, "-c", "from meshlang.cli import main; main()", "launch", str(EXAMPLE), *changes, "--", *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    return [float(found) for found in re.findall(r"step: +\d+ +loss: +([\d.]+)", plain)]


def test_a_ring_trains_as_one_rank(tmp_path: Path) -> None:
    """The example on a ring of two has the losses of one rank, to 1e-5, step after step."""
    one, ring = losses(tmp_path / "one", cp=1), losses(tmp_path / "ring", cp=2)
    assert len(one) == len(ring) == STEPS
    assert one[-1] < one[0]
    assert max(abs(a - b) for a, b in zip(one, ring, strict=True)) <= 1e-5
