"""The distribution of this folder, installed by pip beside nothing else, and meshlang run with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from installed import Meshlang, Ran

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the distribution installed in it, and nothing else."""
    source = tmp_path_factory.mktemp("source") / "meshlang-example"
    shutil.copytree(HERE / "meshlang-example", source, ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    subprocess.run([*pip, *options, str(source)], check=True, capture_output=True, text=True)
    return target


@pytest.fixture
def meshlang(tmp_path: Path, site: Path) -> Meshlang:
    """(command, spec text, more folders) -> `meshlang COMMAND spec.toml` in a process of its own, beside a card."""

    def run(command: str, text: str, *more: Path) -> Ran:
        (tmp_path / "spec.toml").write_text(text)
        shutil.copy(ROOT / "models" / "llama" / "card.toml", tmp_path)
        name, *options = command.split()
        code = "import sys; from meshlang.cli import main; sys.argv[0] = 'meshlang'; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, name, "spec.toml", *options],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*more, site, ROOT)))},
            capture_output=True,
            text=True,
            check=False,
        )
        return Ran(done.returncode, done.stdout + done.stderr)

    return run
