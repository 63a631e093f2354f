"""Completion in the shell, as README.md turns it on: click's own, through the installed command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MESHLANG = str(Path(sys.executable).with_name("meshlang"))


def completed(words: str, shell: str = "bash") -> list[str]:
    """What is offered for the last word of a line, as TYPE,WORD each."""
    given = {"_MESHLANG_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run([MESHLANG], env={**os.environ, **given}, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_commands_are_completed() -> None:
    """Commands that begin with the letters are offered."""
    assert completed("meshlang s") == ["plain,schedule", "plain,schema", "plain,strategies", "plain,suggest"]


def test_options_are_completed() -> None:
    """Options of a command, and the words that one takes."""
    assert "plain,--format" in completed("meshlang check --f")
    assert completed("meshlang check --format g") == ["plain,github"]


def test_codes_are_completed() -> None:
    """`explain` offers codes, and files where no code begins so."""
    assert "plain,unknown-axis" in completed("meshlang explain unknown-a")
    assert completed("meshlang explain ./exa") == ["file,./exa"]


def test_files_are_completed() -> None:
    """Where a spec stands, the shell completes files by itself."""
    assert completed("meshlang check exa") == ["file,exa"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_readme_turns_it_on(shell: str) -> None:
    """README.md has each shell's word, and the script that it gives defines a completion of `meshlang`."""
    assert f"{shell}_source" in (ROOT / "README.md").read_text()
    env = {**os.environ, "_MESHLANG_COMPLETE": f"{shell}_source"}
    done = subprocess.run([MESHLANG], env=env, capture_output=True, text=True, check=True)
    assert f"_MESHLANG_COMPLETE={shell}_complete" in done.stdout


def test_bash_completes_with_it() -> None:
    """In a real bash, the README's line makes `meshlang che` a `meshlang check`."""
    bash = shutil.which("bash")
    assert bash is not None
    script = """
eval "$(_MESHLANG_COMPLETE=bash_source meshlang)"
COMP_WORDS=(meshlang che) COMP_CWORD=1
_meshlang_completion meshlang che
echo "${COMPREPLY[@]}"
"""
    env = {**os.environ, "PATH": f"{Path(MESHLANG).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([bash, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["check"]
