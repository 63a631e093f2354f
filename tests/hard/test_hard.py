"""Whatever a file holds: a finding within 2 seconds of the processor and 500 MB, measured on a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bounded import MEMORY, SECONDS, Forks, Used
from cases import FILES, FINE, GOOD, LOCKS, NO_FILES, OUTSIDE, OWN_CARD, SPECS, TRILLION, WIDE
from large import at_once, cards_at_once

MiB = 2**20
NEAR_THE_MOST = int(0.9 * MiB)
#: Of a line that is printed.
LONGEST = 1200
#: With as many short lines as are read.
LINES = int(0.03 * MiB)


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """One process that forks for every case."""
    found = Forks()
    yield found
    found.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that specs name; one of them has 100 MB, one is a pipe that nobody writes to."""
    above = tmp_path_factory.mktemp("hard")
    found = above / "specs"
    found.mkdir()
    for name, data in FILES.items():
        (found / name).write_bytes(data)
    with (found / "large.bin").open("wb") as file:
        file.truncate(100 * MiB)
    os.mkfifo(found / "pipe")
    (above / "outside.toml").write_bytes(b"[sizes]\nseq = 64\n")
    (found / "link.toml").symlink_to(above / "outside.toml")
    (found / "linked").symlink_to(above)
    (found / "circle.toml").symlink_to(found / "circle.toml")
    return found


def held(done: Used) -> Used:
    """An answer within its limits, whose lines a terminal can show."""
    assert "Traceback" not in done.err
    assert done.code in (0, 1, 2), done
    assert done.seconds < SECONDS
    assert done.memory < MEMORY
    assert max(map(len, [*done.out.splitlines(), *done.err.splitlines(), ""])) < LONGEST
    return done


def checked(forks: Forks, folder: Path, data: bytes, *words: str) -> Used:
    """`meshlang check` of a text; held to its limits, and to an answer."""
    (folder / "s.toml").write_bytes(data)
    done = held(forks.used(["check", "s.toml", "--format", "short", *words], folder))
    assert done.code in (0, 1), done
    return done


@pytest.mark.parametrize("name", SPECS)
def test_hard_specs_are_found_out(name: str, forks: Forks, folder: Path) -> None:
    """Each has the finding that it should have, quickly and in little memory."""
    data, code = SPECS[name]
    done = checked(forks, folder, data, "--allow-outside")
    assert done.code == 1
    assert f"error[{code}]" in done.out


@pytest.mark.parametrize("name", OUTSIDE)
def test_files_outside_are_found_out(name: str, forks: Forks, folder: Path) -> None:
    """Whatever a path is made of, what it comes to lies in the spec's folder."""
    done = checked(forks, folder, OUTSIDE[name])
    assert (done.code, "error[outside-folder]" in done.out) == (1, True), done.out


@pytest.mark.parametrize("name", FINE)
def test_odd_texts_that_are_toml_are_read(name: str, forks: Forks, folder: Path) -> None:
    """What TOML allows is no finding."""
    done = checked(forks, folder, FINE[name])
    assert (done.code, done.out) == (0, "")


@pytest.mark.parametrize("name", at_once(0))
@pytest.mark.parametrize("size", [NEAR_THE_MOST, LINES], ids=["large", "lines"])
def test_large_texts_are_found_out(name: str, size: int, forks: Forks, folder: Path) -> None:
    """As much of one kind as a file may have, or as it may have lines, is answered quickly and in little memory."""
    checked(forks, folder, at_once(size)[name]())


@pytest.mark.parametrize("name", cards_at_once(0))
@pytest.mark.parametrize("size", [NEAR_THE_MOST, LINES], ids=["large", "lines"])
def test_large_cards_are_found_out(name: str, size: int, forks: Forks, folder: Path) -> None:
    """The same of a card."""
    (folder / "own.toml").write_bytes(cards_at_once(size)[name]())
    checked(forks, folder, OWN_CARD)


def test_100_mb_are_a_finding(forks: Forks, folder: Path) -> None:
    """A file of 100 MB is not read; measured on a whole process, from Python's start."""
    done = forks.used(["check", "large.bin", "--format", "short"], folder, anew=True)
    assert (done.code, done.out) == (1, "large.bin:1:1: error[too-large]: large.bin has more than 1 MiB\n")
    held(done)


def test_a_device_is_a_finding(forks: Forks, folder: Path) -> None:
    """A spec that never ends is read as far as a spec may go."""
    done = held(forks.used(["check", "/dev/zero", "--format", "short"], folder))
    assert (done.code, "error[too-large]" in done.out) == (1, True)


@pytest.mark.parametrize("name", NO_FILES)
def test_what_is_no_file_is_usage(name: str, forks: Forks, folder: Path) -> None:
    """A spec that cannot be read is told in a line, and nothing is waited for."""
    for command in ("check", "plan", "fmt"):
        done = held(forks.used([command, NO_FILES[name]], folder))
        assert (done.code, done.out) == (2, ""), done
        assert done.err.startswith("Usage: ")


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_may_be_anything(name: str, forks: Forks, folder: Path) -> None:
    """A golden file that is none is told so; a plan that differs from a long one is told quickly."""
    (folder / "s.toml").write_text(GOOD)
    (folder / "x.lock").write_bytes(LOCKS[name][0])
    path = LOCKS[name][1] or "x.lock"
    assert held(forks.used(["plan", "s.toml", "--lock", path], folder)).code in (1, 2)


def test_files_that_include_many_are_found_out(forks: Forks, tmp_path: Path) -> None:
    """Files that include two each, and a chain of hundreds, end in a finding."""
    for i in range(200):
        both = f'include = ["f{i + 1}.toml", "g{i + 1}.toml"]\n'
        for name in ("f", "g"):
            (tmp_path / f"{name}{i}.toml").write_text(both)
    text = GOOD.replace('"preset:ddp"', '"f0.toml", "g0.toml"').encode()
    assert "error[too-large]" in checked(forks, tmp_path, text).out


@pytest.mark.parametrize("words", WIDE, ids=" ".join)
def test_a_wide_mesh_is_shown(words: list[str], forks: Forks, folder: Path) -> None:
    """No command walks over the ranks of a spec that is fine and has a trillion of them."""
    (folder / "s.toml").write_bytes(TRILLION)
    (folder / "other.toml").write_bytes(TRILLION.replace(b"tp = 2", b"tp = 1"))
    done = held(forks.used(words, folder))
    assert done.code == (2 if "other.toml" in words else 0), done


@pytest.mark.parametrize("command", ["plan", "mesh", "fmt", "diff"])
def test_other_commands_hold_the_limits(command: str, forks: Forks, folder: Path) -> None:
    """Every command that reads a spec refuses a large one alike."""
    words = [command, "large.bin", *(["large.bin"] if command == "diff" else []), "--format", "short"]
    done = held(forks.used(words, folder))
    assert (done.code, "error[too-large]" in done.out) == (1, True)


EVIL = """meshlang = 1
model = "own.toml#a"
include = ["base.toml"]
[mesh]
dp = 1
[launch]
recipe = "evil:recipe"
ranks = 1
[strategy.evil]
axis = "dp"
"""

_AUDIT = """
import sys
from meshlang.cli import main
seen = []
names = ("subprocess.Popen", "os.system", "os.exec", "socket.connect", "os.posix_spawn")
sys.path.insert(0, "")
sys.addaudithook(lambda event, arguments: seen.append(event) if event in names else None)
for command in ("check", "plan", "mesh", "fmt"):
    try:
        main([command, "s.toml"], standalone_mode=False)
    except SystemExit:
        pass
assert not seen, seen
assert "evil" not in sys.modules
"""


def test_a_spec_runs_no_code(tmp_path: Path) -> None:
    """No command that reads a spec imports what it names, starts a process or connects: only `launch` does."""
    for name in ("evil.py", "base.py", "own.py"):
        (tmp_path / name).write_text("raise SystemExit('ran')\n")
    (tmp_path / "s.toml").write_text(EVIL)
    (tmp_path / "base.toml").write_text("[sizes]\nbatch = 1\n")
    (tmp_path / "own.toml").write_text("card = 1\n")
    done = subprocess.run(
        [sys.executable, "-c", _AUDIT], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "ran" not in done.stdout
