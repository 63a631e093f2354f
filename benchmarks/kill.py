"""Ranks killed at random, and a launch that goes on: the last loss against an unbroken run's.

Each repetition is `meshlang launch --max-restarts 1` of the tiny model on two ranks with a checkpoint
every two steps; one of its ranks is killed (kill -9) at a step between 1 and 9, of 12.

    python benchmarks/kill.py [--times 20] [--seed 0]
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
from pathlib import Path
from time import perf_counter

from meshlang.testing.launched import Launched

STEPS = 12


def unbroken() -> float:
    """The last loss of a run that nobody disturbs."""
    with tempfile.TemporaryDirectory(prefix="kill-") as folder, Launched(Path(folder), steps=STEPS) as run:
        assert run.end() == 0, run.text()
        return run.losses()[-1][1]


def killed(rank: int, step: int) -> tuple[int, str, float]:
    """(exit code, what the launch said of the failure, last loss) of a run whose rank was killed."""
    options = ["--max-restarts", "1"]
    with (
        tempfile.TemporaryDirectory(prefix="kill-") as folder,
        Launched(Path(folder), steps=STEPS, options=options) as run,
    ):
        run.at(step)
        os.kill(run.ranks()[rank], signal.SIGKILL)
        code = run.end()
        return code, "; ".join(run.said()), run.losses()[-1][1]


def main() -> None:
    """Print a row a repetition, and the count of those that went well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    want = unbroken()
    print(f"unbroken: step {STEPS} loss {want:.5f}", flush=True)
    good = 0
    for index in range(options.times):
        started = perf_counter()
        code, said, loss = killed(draw.randrange(2), draw.randrange(1, 10))
        well = code == 0 and abs(loss - want) <= 1e-5 * want
        good += well
        took = perf_counter() - started
        print(
            f"  {index + 1:3} {'ok' if well else 'NOT'} exit {code} loss {loss:.5f} {took:4.0f} s  {said}", flush=True
        )
    print(f"{good} of {options.times} resumed and ended at the same loss")


if __name__ == "__main__":
    main()
