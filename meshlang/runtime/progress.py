"""How far each rank of a launch is, and what it failed of: small files beside the job.

A rank writes, the launch reads. A rank that is killed leaves its last step behind.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from .recipe import JOB

#: What a rank says whose neighbour has gone: the failure is elsewhere.
_ECHOES = (
    "onnection closed by peer",
    "onnection reset by peer",
    "onnection refused",
    "roken pipe",
    "ProcessGroupGloo",
    "Socket closed",
    "remote process has terminated",
    "timed out waiting",
)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Why a rank ended: what to say, when it was (seconds), and the traceback that would help, or "".

    An `echo` only says that another rank has gone; what is `expected` holds for all ranks and says enough.
    """

    rank: int
    text: str
    time: float
    trace: str = ""
    echo: bool = False
    expected: bool = False


def folder() -> Path | None:
    """The folder of this launch; None in a process that no launch has started."""
    job = os.environ.get(JOB)
    return Path(job).parent if job else None


def my_rank() -> int:
    """The rank of this process, as torchrun says it."""
    return int(os.environ.get("RANK", "0"))


def done(step: int) -> None:
    """This rank has finished a step; 0 before the first."""
    if (here := folder()) is not None:
        (here / f"step-{my_rank()}").write_text(str(step))


def keeps(checkpoints: str) -> None:
    """The run's checkpoints are in this folder."""
    if (here := folder()) is not None and my_rank() % int(os.environ.get("LOCAL_WORLD_SIZE", "1")) == 0:
        (here / "checkpoints").write_text(checkpoints)


def failed(error: BaseException, *, expected: bool) -> bool:
    """This rank ends with an exception; an `expected` one says enough without its traceback.

    Returns:
        Whether it is an echo.
    """
    here = folder()
    if here is None:
        return False
    text = f"{error}" if expected else f"{type(error).__name__}: {error}"
    trace = "" if expected else "".join(traceback.format_exception(error))
    echo = not expected and any(word in text for word in _ECHOES)
    fault = Fault(rank=my_rank(), text=text, time=time.time(), trace=trace, echo=echo, expected=expected)
    (here / f"fault-{my_rank()}.json").write_text(json.dumps(asdict(fault)))
    return echo


def step_of(here: Path, rank: int) -> int | None:
    """The last step that a rank finished; None if it never began."""
    try:
        return int((here / f"step-{rank}").read_text())
    except (OSError, ValueError):
        return None


def checkpoints_of(here: Path) -> str | None:
    """Where the run keeps its checkpoints; None if it keeps none, or did not come so far."""
    try:
        return (here / "checkpoints").read_text()
    except OSError:
        return None


def faults_of(here: Path) -> list[Fault]:
    """What ranks of this attempt failed of."""
    found = []
    for path in here.glob("fault-*.json"):
        with suppress(OSError, ValueError):
            found.append(Fault(**json.loads(path.read_text())))
    return found


def forget(here: Path) -> None:
    """A new attempt begins: what the last one left is no longer true."""
    for path in (*here.glob("fault-*.json"), *here.glob("step-*")):
        path.unlink(missing_ok=True)


def end_with_parent(what: signal.Signals) -> None:
    """The operating system sends this process a signal when the one that started it is gone. Linux only."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, int(what), 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os.kill(os.getpid(), what)
