"""Long work tells how far it is on a terminal, and nothing in a pipe."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

WORK = """
from meshlang.cli.progress import progress
with progress("plans", 3, "of llama3") as tick:
    for name in ("of qwen3", "of gpt2", "", "one more than said"):
        tick(name)
print("done")
"""
FAILS = """
from meshlang.cli.progress import progress
with progress("plans", 3):
    raise SystemExit(3)
"""


def watched(words: Sequence[str], cwd: Path | None = None) -> tuple[int, str, str]:
    """(exit code, stdout, what a terminal on stderr was sent) of a Python command."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "100"}
    with subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=theirs, cwd=cwd, env=environment
    ) as process:
        os.close(theirs)
        sent = b""
        while part := _read(ours):
            sent += part
        assert process.stdout is not None
        out = process.stdout.read().decode()
    os.close(ours)
    return process.returncode, out, sent.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux says so at the end of a terminal
        return b""


def piped(words: Sequence[str], cwd: Path | None = None) -> tuple[int, str, str]:
    """The same with a pipe on stderr."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


def test_terminal_is_told_each_step() -> None:
    """A terminal gets the text, each count and what is being done, never more than all; then the line is cleared."""
    code, out, sent = watched(["-c", WORK])
    assert (code, out) == (0, "done\n")
    assert "plans" in sent
    places = [sent.index(each) for each in ("0/3", "of llama3", "1/3", "of qwen3", "2/3", "of gpt2", "3/3")]
    assert places == sorted(places)
    assert "4/3" not in sent
    assert sent.endswith("\033[?25h\r\n\033[1A\033[2K")


def test_pipe_is_told_nothing() -> None:
    """In a pipe there is the result alone."""
    assert piped(["-c", WORK]) == (0, "done\n", "")


def test_line_is_cleared_after_failure() -> None:
    """A command that ends in the middle leaves no bar, and its own exit code."""
    code, _, sent = watched(["-c", FAILS])
    assert code == 3
    assert sent.endswith("\033[1A\033[2K")


@pytest.mark.parametrize("columns", [30, 60, 100])
def test_line_fits_terminal(columns: int) -> None:
    """However long the text of what is being done, a line is not longer than the terminal's: one is to be cleared."""
    work = f"import os; os.environ['COLUMNS'] = '{columns}'\n" + WORK.replace("of qwen3", "q" * 200)
    _, _, sent = watched(["-c", work])
    lines = [re.sub("\033\\[[?0-9]*[a-zA-Z]", "", line) for line in sent.splitlines()]
    assert any("1/3" in line for line in lines)
    assert max(len(line.rstrip()) for line in lines) <= columns


SPEC = """meshlang = 1
include = ["preset:whole_weights"]
model = "llama/tiny"

[mesh]
pp = 2

[sizes]
batch = 4
seq = 4

[pipeline]
schedule = "1f1b"
microbatches = 4
"""


@pytest.mark.parametrize("options", [["--fit", "2"], ["--compare"], ["--json"]], ids=lambda words: words[0])
def test_commands_print_alike(options: list[str], tmp_path: Path) -> None:
    """A search, a comparison and a simulation print the same in a pipe, without a word on stderr, as on a terminal."""
    (tmp_path / "spec.toml").write_text(SPEC)
    words = ["-m", "meshlang", "schedule", "spec.toml", *options]
    code, out, told = piped(words, tmp_path)
    assert (code, told) == (0, "")
    code, seen, sent = watched(words, tmp_path)
    assert (code, seen) == (0, out)
    assert "schedule" in sent
    assert sent.endswith("\033[1A\033[2K")
    if "--json" not in options:
        total = re.findall(r"(\d+)/(\d+)", sent)[-1]
        assert total[0] == total[1] != "0"
