"""One command in a process of its own, with its seconds of the processor and its most memory."""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

#: What a finding may cost, whatever is in a spec: seconds of the processor, and bytes.
SECONDS = 2.0
MEMORY = 500 * 2**20

#: Run in the process: the command, then what it has used, on the last line of stderr. The most memory is
#: Linux's VmHWM, which begins anew with a program; ru_maxrss is handed down from the process that started it.
_PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
from meshlang.cli import main
code = 0
try:
    main({words!r}, standalone_mode=True)
except SystemExit as stop:
    code = stop.code or 0
sys.stdout.flush()
seconds = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
most = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(seconds, int(most) * 1024, file=sys.stderr)
sys.exit(code)
"""


@dataclass(frozen=True, kw_only=True)
class Used:
    """How a command ended, what it printed, and what it used."""

    code: int
    out: str
    err: str
    seconds: float
    memory: int


def used(words: list[str], folder: Path) -> Used:
    """`meshlang WORDS` in a folder; a process that dies on its limits has used all of them."""
    program = _PROGRAM.format(limit=4 * 2**30, words=words)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    *err, last = done.stderr.splitlines() or [""]
    figures = last.split()
    if len(figures) != 2 or not figures[1].isdigit():
        return Used(code=done.returncode, out=done.stdout, err=done.stderr, seconds=30.0, memory=resource.RLIM_INFINITY)
    return Used(
        code=done.returncode,
        out=done.stdout,
        err="\n".join(err),
        seconds=float(figures[0]),
        memory=int(figures[1]),
    )
