"""One command in a process of its own, with its seconds of the processor and its most memory.

Processes are forked from one that has read meshlang's modules already, so a case costs what it asks and not another
start of Python, unless it is to begin anew.
"""

from __future__ import annotations

import json
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


class Forks:
    """A process that forks for each command that it is asked for."""

    def __init__(self) -> None:
        words = [sys.executable, str(Path(__file__).with_name("forks.py"))]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def used(self, words: Sequence[str], folder: Path, *, anew: bool = False) -> Used:
        """`meshlang WORDS` in a folder; `anew` with a start of Python, all that a user waits for."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"words": list(words), "folder": str(folder), "anew": anew}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        return Used(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
