"""One command in a process of its own, with its seconds of the processor and its most memory.

Processes are forked from one that has read meshlang's modules already, so a case costs what it asks and not another
start of Python; `begun` is a whole process, start and all.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: What a finding may cost, whatever is in a spec: seconds of the processor, and bytes.
SECONDS = 2.0
MEMORY = 500 * 2**20


@dataclass(frozen=True, kw_only=True)
class Used:
    """How a command ended, what it printed, and what it used."""

    code: int
    out: str
    err: str
    seconds: float
    memory: int


def begun(words: Sequence[str], folder: Path) -> Used:
    """`meshlang WORDS` as a whole process; its memory may be that of the process that started it, if that has more."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "meshlang", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    memory = after.ru_maxrss * 1024
    return Used(code=done.returncode, out=done.stdout, err=done.stderr, seconds=seconds, memory=memory)


class Forks:
    """A process that forks for each command that it is asked for."""

    def __init__(self) -> None:
        words = [sys.executable, str(Path(__file__).with_name("forks.py"))]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def used(self, words: Sequence[str], folder: Path) -> Used:
        """`meshlang WORDS` in a folder."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"words": list(words), "folder": str(folder)}), file=self._process.stdin, flush=True)
        return Used(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
