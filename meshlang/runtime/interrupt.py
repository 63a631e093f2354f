"""A run that is interrupted: it ends at once, or after the step that it is in and with a checkpoint.

In the second case nobody is killed. The signal becomes a small file beside the job, each rank looks for it when a
step is over, and all ranks agree (`stopping.py`); so it does not matter which process of a launch hears the signal:
a terminal tells the launcher alone, schedulers tell every process of a job.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from . import progress

#: What an interrupt does.
OnInterrupt = Literal["end", "checkpoint"]

#: Signals that ask for the end. The last is one that schedulers send where they are told to.
ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
#: From the launcher to torchrun's agent, and from it to the ranks: end at once.
AT_ONCE = signal.SIGUSR2
#: What the agent ends its ranks for, where the others only ask.
_ENDING = "--signals-to-handle=SIGHUP,SIGUSR2"

_ASKED, _STOPPED = "asked", "stopped"


def agent_words(on_interrupt: OnInterrupt) -> list[str]:
    """Arguments of the agent for it."""
    return [_ENDING] if on_interrupt == "checkpoint" else []


def asks(words: Sequence[str]) -> bool:
    """Whether an agent with these arguments leaves the end to its ranks."""
    return _ENDING in words


def ask(here: Path, number: int, who: str = "") -> None:
    """The run shall end after a step, for a signal, the first that says so. `who` is a rank, or "" for all."""
    with suppress(OSError), (here / f"{_ASKED}{who}").open("x") as file:
        file.write(str(int(number)))


def asked(here: Path, who: str = "") -> int:
    """The signal that asked for the end; 0 where none has."""
    return next(iter(_numbers(here / f"{_ASKED}{who}")), 0)


def stopped(here: Path, number: int, step: int) -> None:
    """The ranks have ended after a step."""
    (here / _STOPPED).write_text(f"{int(number)} {step}")


def stopped_after(here: Path) -> tuple[signal.Signals, int] | None:
    """(signal, step) of a run that was asked to end, and did before its last step."""
    numbers = _numbers(here / _STOPPED)
    return (signal.Signals(numbers[0]), numbers[1]) if len(numbers) == 2 else None


def _numbers(path: Path) -> Sequence[int]:
    with suppress(OSError, ValueError):
        return [int(word) for word in path.read_text().split()]
    return ()


def listen_on_agent(here: Path) -> None:
    """In the agent: the signals that ask are kept for the ranks."""
    for number in ASKING:
        signal.signal(number, lambda number, _: ask(here, number))


def listen_on_rank() -> None:
    """In a rank: the same by a thread, since a rank that waits for others in a collective runs no handler.

    The agent closes ranks with SIGTERM once one of them has failed: that one is obeyed. Linux only.
    """
    here = progress.folder()
    if here is None or not hasattr(signal, "sigwaitinfo"):
        return
    who = f"-{progress.my_rank()}"
    (here / f"{_ASKED}{who}").unlink(missing_ok=True)  # of an attempt before
    signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)
    os.register_at_fork(after_in_child=_obey)
    threading.Thread(target=_wait, args=(here, who), daemon=True).start()


def _obey() -> None:
    """Signals end a process as they do by default: in a process that a rank forks."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)


def _wait(here: Path, who: str) -> None:
    agent = os.getppid()
    while True:
        heard = signal.sigwaitinfo(ASKING)
        if heard.si_pid == agent:
            os.kill(os.getpid(), signal.SIGKILL)
        ask(here, heard.si_signo, who)


def ask_and_say(here: Path, number: int) -> None:
    """In the launcher: the same, and whoever interrupts is told; safe in a handler of signals."""
    ask(here, number)
    name = signal.Signals(number).name
    text = f"meshlang: {name}: the run ends after this step, with a checkpoint; once more ends it at once\n"
    with suppress(OSError):
        os.write(sys.stderr.fileno(), text.encode())
