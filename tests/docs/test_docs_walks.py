"""Pages of docs/ that start ranks, walked from their first line to their last in a real shell.

The default run walks the tutorial with the packages that are here. `make walks` walks it from nothing,
installing as it says, and every other page that launches.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from walks import DOCS, PAGES, ROOT, Bash, Step, steps, walk

TUTORIAL = DOCS / "tutorial.md"

pytestmark = pytest.mark.gloo


def _launching() -> list[Path]:
    return [path for path in PAGES if any(step.launches for step in steps(path.read_text(encoding="utf-8")))]


def _walked(page: Path, folder: Path, leave: Callable[[Step], bool]) -> None:
    folder.mkdir()
    shell = Bash(folder, Path(sys.executable).parent)
    try:
        walk(page, folder, shell, leave=leave)
    finally:
        shell.close()


def _installs(step: Step) -> bool:
    """The lines by which the tutorial makes its environment."""
    return step.kind == "quiet" and step.text.split()[0] in ("mkdir", "cd", "python3", ".", "pip")


def test_tutorial_with_what_is_installed(tmp_path: Path) -> None:
    """From an empty file to a trained and tested run, every command prints what the page shows."""
    _walked(TUTORIAL, tmp_path / "first", _installs)


@pytest.mark.full
@pytest.mark.parametrize("page", [path for path in _launching() if path != TUTORIAL], ids=lambda path: path.stem)
def test_pages_that_launch(page: Path, tmp_path: Path) -> None:
    """Every command of a page prints what it shows, its launches too."""
    _walked(page, tmp_path / "first", lambda step: False)


@pytest.mark.full
def test_tutorial_from_nothing(tmp_path: Path) -> None:
    """In a fresh environment, following only the tutorial, every command works as printed."""
    _sources(tmp_path / "meshlang")
    shell = Bash(tmp_path, Path(sys.base_prefix) / "bin")
    try:
        walk(TUTORIAL, tmp_path / "first", shell, leave=lambda step: False)
    finally:
        shell.close()


def _sources(clone: Path) -> None:
    """What pip installs from, without what was built here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in project["tool"]["setuptools"]["package-dir"].values():
        shutil.copytree(ROOT / folder, clone / folder, ignore=ignore)
    for name in ("pyproject.toml", project["project"]["readme"]):
        shutil.copy(ROOT / name, clone)
