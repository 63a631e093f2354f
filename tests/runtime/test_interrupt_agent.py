"""Signals through launcher, torchrun's agent and two ranks that train nothing: who ends, and what is said."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from meshlang.runtime import interrupt
from meshlang.runtime.recipe import JOB
from meshlang.runtime.torchrun import Torchrun

_LAUNCHER = """
import os, sys
from pathlib import Path
from meshlang.runtime.launch import _wait
words = sys.argv[2:]
sys.exit(_wait([sys.executable, "-m", "meshlang.runtime.agent", *words], dict(os.environ), Path(sys.argv[1])))
"""
_RANK = """
import os, time
from meshlang.runtime import interrupt, progress
interrupt.listen_on_rank()
here, rank = progress.folder(), os.environ["RANK"]
progress.done(6)
(here / f"up-{rank}").write_text(f"{os.getpid()} {os.getppid()} {os.environ['MASTER_PORT']}")
while not (here / "deaf").exists():
    time.sleep(0.02)
    if number := interrupt.asked(here) or interrupt.asked(here, f"-{rank}"):
        interrupt.stopped(here, number, 7)
        break
else:
    time.sleep(600)
"""


class Run:
    """A launcher, its agent and two ranks."""

    def __init__(self, folder: Path, torchrun: Torchrun) -> None:
        folder.mkdir()
        self.folder = folder
        (folder / "rank.py").write_text(_RANK)
        words = [*torchrun.words(2), f"--log-dir={folder / 'logs'}", str(folder / "rank.py")]
        command = [sys.executable, "-c", _LAUNCHER, str(folder), *words]
        environment = {**os.environ, JOB: str(folder / "job.json"), "OMP_NUM_THREADS": "1"}
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        self.launcher = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    def until(self, true: Callable[[], bool]) -> None:
        """Wait for something that comes while the launch goes on."""
        end = time.monotonic() + 120
        while not true():
            assert self.launcher.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)

    def up(self) -> list[list[int]]:
        """Of each rank, once it is there: its process, its agent's, and the port where ranks meet."""
        paths = [self.folder / f"up-{rank}" for rank in range(2)]
        self.until(lambda: all(path.exists() and len(path.read_text().split()) == 3 for path in paths))
        return [[int(word) for word in path.read_text().split()] for path in paths]

    def end(self) -> tuple[int, list[str]]:
        """Its exit code, and the lines of meshlang's own."""
        _, said = self.launcher.communicate(timeout=120)
        return self.launcher.returncode, [line for line in said.splitlines() if line.startswith("meshlang: ")]


def opened(run: Run, path: Path) -> int:
    """The writing end of a pipe, once somebody reads it."""
    found: list[int] = []

    def try_to_open() -> bool:
        with suppress(OSError):  # nobody reads yet
            found.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        return bool(found)

    run.until(try_to_open)
    return found[0]


Started = Callable[..., Run]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """Starts runs, and leaves none behind."""
    runs: list[Run] = []

    def start(**options: object) -> Run:
        runs.append(Run(tmp_path / str(len(runs)), Torchrun(on_interrupt="checkpoint", **options)))  # pyright: ignore[reportArgumentType]
        return runs[-1]

    yield start
    for run in runs:
        run.launcher.kill()
        run.launcher.wait()


def test_every_process_may_hear_the_signal(started: Started) -> None:
    """SIGTERM for launcher, agent and ranks at a time: the ranks stop by themselves, and the line has their step."""
    run = started()
    (one, agent, _), (two, _, _) = run.up()
    for pid in (two, one, agent, run.launcher.pid):
        os.kill(pid, signal.SIGTERM)
    code, said = run.end()
    assert code == 128 + signal.SIGTERM
    assert said[-1] == "meshlang: SIGTERM ended the run after step 7; no checkpoints"


def test_the_second_signal_ends_ranks_that_do_not_stop(started: Started) -> None:
    """Ranks in a step that does not end are ended by the agent, at once and not after its patience."""
    run = started()
    (run.folder / "deaf").touch()
    ranks = [rank[0] for rank in run.up()]
    run.launcher.send_signal(signal.SIGINT)
    run.until(lambda: (run.folder / "asked").exists())
    run.launcher.send_signal(signal.SIGINT)
    code, said = run.end()
    assert code == 128 + signal.SIGINT
    assert said[-1] == "meshlang: SIGINT ended the run; no checkpoints"
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks)


def test_a_further_signal_leaves_the_last_line_whole(started: Started) -> None:
    """The agent says what is left to resume from, also where it is interrupted while it looks."""
    run = started()
    (run.folder / "deaf").touch()
    agent = run.up()[0][1]
    os.mkfifo(run.folder / "checkpoints")  # who reads it waits for the writer
    run.launcher.send_signal(signal.SIGINT)
    run.until(lambda: (run.folder / "asked").exists())
    run.launcher.send_signal(signal.SIGINT)
    pipe = opened(run, run.folder / "checkpoints")
    os.kill(agent, interrupt.AT_ONCE)
    os.write(pipe, str(run.folder).encode())
    os.close(pipe)
    code, said = run.end()
    assert code == 128 + signal.SIGINT
    assert said[-1] == f"meshlang: SIGINT ended the run; no whole checkpoint in {run.folder}"


def test_a_rank_that_is_killed_ends_the_other(started: Started) -> None:
    """The agent's own SIGTERM is obeyed, and the line names the rank that went first."""
    run = started()
    (run.folder / "deaf").touch()
    one, two = (rank[0] for rank in run.up())
    os.kill(two, signal.SIGKILL)
    code, said = run.end()
    assert code == 1
    assert said == ["meshlang: rank 1 was killed by SIGKILL, at step 7; no checkpoints; the run ends"]
    assert not Path(f"/proc/{one}").exists()


def test_launches_at_a_time_have_ports_of_their_own(started: Started) -> None:
    """Two launches in one moment, and one that is told its port."""
    with socket.socket() as sock:
        sock.bind(("localhost", 0))
        given = sock.getsockname()[1]
    runs = [started(), started(), started(master_port=given)]
    ports = [{port for _, _, port in run.up()} for run in runs]
    assert len(set.union(*ports)) == 3
    assert ports[2] == {given}
    for run in runs:
        run.launcher.send_signal(signal.SIGINT)
    assert [run.end()[0] for run in runs] == [128 + signal.SIGINT] * 3
