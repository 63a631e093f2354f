"""Signals of a run that is asked to end: who hears them, and what each process does then. No rank trains here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from meshlang.runtime import interrupt
from meshlang.runtime.recipe import JOB
from meshlang.runtime.torchrun import Torchrun

#: A launcher around an agent that waits to be asked, and around one that only a signal ends.
_LAUNCHER = """
import sys
from pathlib import Path
from meshlang.runtime.launch import _wait
import os
sys.exit(_wait([sys.executable, "-c", sys.argv[1]], dict(os.environ), Path(sys.argv[2])))
"""
_ASKED = """
import sys, time
from pathlib import Path
from meshlang.runtime import interrupt
print("ready", flush=True)
while not interrupt.asked(Path.cwd()):
    time.sleep(0.01)
sys.exit(128 + interrupt.asked(Path.cwd()))
"""
_DEAF = """
import time
print("ready", flush=True)
time.sleep(600)
"""
#: A rank that waits and says when it was asked.
_RANK = """
import sys, threading, time
from pathlib import Path
from meshlang.runtime import interrupt
interrupt.listen_on_rank()
def say():
    while not interrupt.asked(Path.cwd(), "-3"):
        time.sleep(0.01)
    print("asked", flush=True)
threading.Thread(target=say, daemon=True).start()
print("ready", flush=True)
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""


def started(program: str, *words: str, folder: Path) -> subprocess.Popen[str]:
    """A program in a folder, once it has said that it is ready."""
    environment = {**os.environ, JOB: str(folder / "job.json"), "RANK": "3"}
    command = [sys.executable, "-c", program, *words]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", interrupt.ASKING)
def test_the_first_signal_only_asks(number: signal.Signals, tmp_path: Path) -> None:
    """The launcher writes down what it hears, says so, and ends as its agent does."""
    process = started(_LAUNCHER, _ASKED, str(tmp_path), folder=tmp_path)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert (
        said == f"meshlang: {number.name}: the run ends after this step, with a checkpoint; once more ends it at once\n"
    )


def test_the_second_signal_ends_at_once(tmp_path: Path) -> None:
    """An agent that does not end by itself is ended; the exit code is the first signal's."""
    process = started(_LAUNCHER, _DEAF, str(tmp_path), folder=tmp_path)
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    assert "once more" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT


def test_a_rank_hears_a_scheduler(tmp_path: Path) -> None:
    """A signal from anywhere but the agent only asks, and does not end the rank."""
    process = started(_RANK, folder=tmp_path)
    subprocess.run(["kill", "-TERM", str(process.pid)], check=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "asked\n"
    assert interrupt.asked(tmp_path, "-3") == signal.SIGTERM
    assert interrupt.asked(tmp_path) == 0
    process.kill()
    process.communicate()


def test_a_rank_obeys_its_agent(tmp_path: Path) -> None:
    """The same signal from the process that started it ends a rank, and what was asked before is forgotten."""
    interrupt.ask(tmp_path, signal.SIGINT, "-3")
    process = started(_RANK, folder=tmp_path)
    assert interrupt.asked(tmp_path, "-3") == 0
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


def test_the_first_that_asks_is_named(tmp_path: Path) -> None:
    """Of several signals the first is kept; a step after which all ranks stopped is kept with it."""
    assert interrupt.stopped_after(tmp_path) is None
    interrupt.ask(tmp_path, signal.SIGINT)
    interrupt.ask(tmp_path, signal.SIGTERM)
    assert interrupt.asked(tmp_path) == signal.SIGINT
    interrupt.stopped(tmp_path, signal.SIGINT, 7)
    assert interrupt.stopped_after(tmp_path) == (signal.SIGINT, 7)


def test_the_agent_is_told_what_to_obey() -> None:
    """Only a run that shall end with a checkpoint keeps torchrun from ending its ranks for SIGINT and SIGTERM."""
    assert not interrupt.asks(Torchrun().words(2))
    assert interrupt.asks(Torchrun(on_interrupt="checkpoint").words(2))
