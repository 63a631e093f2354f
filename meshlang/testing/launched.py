"""`meshlang launch` as a process to watch, and to hurt."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

SPEC = """
meshlang = 1
model = "llama/tiny"
mesh = { dp = 2 }
sizes = { batch = 4, seq = 64 }
precision = { state = "float32", compute = "float32", reduce = "float32" }
place = { batch = "dp", heads = "whole", kv_heads = "whole", mlp = "whole", vocab = "whole" }
store = { over = ["dp"] }

[launch]
recipe = "meshlang_models.llama:tiny"
"""


class Launched:
    """One launch of the tiny model on two ranks, with its output in a file and a checkpoint every few steps.

    As a context manager it leaves no process behind.
    """

    def __init__(
        self,
        folder: Path,
        *,
        steps: int,
        options: Sequence[str] = (),
        recipe: str | None = None,
        spec: str = SPEC,
        interval: int = 2,
        environment: Mapping[str, str] | None = None,
        name: str = "log",
    ) -> None:
        path = folder / f"{name}.toml"
        path.write_text(spec if recipe is None else spec.replace("meshlang_models.llama:tiny", recipe))
        self.dump = folder / "out"
        self.log = folder / f"{name}.txt"
        every = ["--checkpoint.enable", "--checkpoint.interval", str(interval), "--metrics.log-freq", "1"]
        sizes = ["--training.steps", str(steps), "--lr-scheduler.total-steps", "1000"]
        command = [sys.executable, "-m", "meshlang", "launch", str(path), *options, "--device", "cpu", "--"]
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [*command, *every, *sizes, "--metrics.disable-color-printing", "--dump-folder", str(self.dump)],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
            )

    def __enter__(self) -> Launched:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
        for pid in self.ranks().values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def text(self) -> str:
        """All output so far."""
        return self.log.read_text(errors="replace")

    def losses(self) -> list[tuple[int, float]]:
        """(step, loss) of each line of torchtitan's log; a step that was repeated comes again."""
        return [(int(step), float(loss)) for step, loss in re.findall(r"step: +(\d+) +loss: +([0-9.]+)", self.text())]

    def said(self) -> list[str]:
        """What the launch itself said, after its first line."""
        return [line for line in self.text().splitlines() if line.startswith("meshlang: ")][1:]

    def until(self, true: Callable[[], Any], seconds: float = 240) -> None:
        """Wait for something; an error if the launch ends before, or it takes too long."""
        end = time.monotonic() + seconds
        while not true():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"it did not come to that:\n{self.text()}")
            time.sleep(0.02)

    def at(self, step: int) -> None:
        """Wait until a step is logged."""
        self.until(lambda: any(each >= step for each, _ in self.losses()))

    def end(self, seconds: float = 240) -> int:
        """Wait for its exit code."""
        return self.process.wait(seconds)

    def ranks(self) -> dict[int, int]:
        """Rank -> process id of the ranks that are alive. Linux only."""
        found = {}
        for entry in Path("/proc").iterdir():
            with suppress(OSError, KeyError, ValueError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"meshlang.runtime.worker" not in words or str(self.dump).encode() not in words:
                    continue
                lines = (entry / "environ").read_bytes().split(b"\0")
                pairs = dict(line.split(b"=", 1) for line in lines if b"=" in line)
                found[int(pairs[b"RANK"])] = int(entry.name)
        return found
