"""What is installed is what lies in the folders."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from email.parser import Parser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS: dict[str, Any] = PROJECT["tool"]["setuptools"]
FOLDERS: dict[str, str] = SETUPTOOLS["package-dir"]

#: Files that are read at run time beside the Python that reads them.
DATA = (".md", ".toml", ".typed", ".css", ".js", ".html")


def _files(*suffixes: str) -> set[str]:
    """Files of our packages by their installed path."""
    return {
        f"{package}/{path.relative_to(ROOT / folder).as_posix()}"
        for package, folder in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in suffixes and "__pycache__" not in path.parts
    }


def test_packages_are_the_folders() -> None:
    """The packages listed are the folders with Python files or with data."""
    folders = {name.rpartition("/")[0].replace("/", ".") for name in _files(".py", *DATA)}
    assert sorted(SETUPTOOLS["packages"]) == sorted(folders)


def test_every_package_has_an_init() -> None:
    """No folder with Python files is a namespace package by accident."""
    folders = {name.rpartition("/")[0] for name in _files(".py")}
    assert {f"{folder}/__init__.py" for folder in folders} <= _files(".py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    """A wheel built from a copy without caches and build outputs."""
    copy, out = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("wheel")
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in FOLDERS.values():
        shutil.copytree(ROOT / folder, copy / folder, ignore=skip)
    for name in ("pyproject.toml", PROJECT["project"]["readme"]):
        shutil.copy(ROOT / name, copy)
    code = f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ZipFile(next(out.glob("*.whl")))


def test_wheel_has_every_file(wheel: ZipFile) -> None:
    """All Python and all data of our packages are in the wheel, and nothing else of ours."""
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == _files(".py", *DATA)


def test_wheel_has_cards_pages_and_presets(wheel: ZipFile) -> None:
    """Model cards, the pages of `explain` and the presets are read from the installed package."""
    names = wheel.namelist()
    assert "meshlang_models/llama/card.toml" in names
    assert "meshlang/language/presets/tensor_parallel.toml" in names
    assert "meshlang/explain/unknown-axis.md" in names


def test_wheel_brings_its_entry_points(wheel: ZipFile) -> None:
    """Command, cards, plugins and the pytest plugin are found by their names."""
    (name,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    text = wheel.read(name).decode()
    points = PROJECT["project"]["entry-points"]
    assert "meshlang = meshlang.cli:main" in text
    for group, entries in points.items():
        assert f"[{group}]" in text
        assert all(f"{key} = {value}" in text for key, value in entries.items())


def test_entry_points_name_what_is_there() -> None:
    """Each entry point of ours names a module that lies in the folders."""
    for entries in PROJECT["project"]["entry-points"].values():
        for value in entries.values():
            module = value.partition(":")[0].replace(".", "/")
            assert {f"{module}.py", f"{module}/__init__.py"} & _files(".py"), value


def test_metadata_pins_what_moves(wheel: ZipFile) -> None:
    """torchtitan is pinned to its minor version, for its seams move; the rest by floor."""
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    needs = Parser().parsestr(wheel.read(name).decode()).get_all("Requires-Dist") or []
    assert "torchtitan~=0.3.0" in needs
    assert not [need for need in needs if "==" in need.partition(";")[0]]


def test_names_of_test_files_are_unique() -> None:
    """Folders of tests are no packages, so pytest and imports know each file by its bare name."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py")
    assert [name for name, count in names.items() if count > 1 and name != "__init__.py"] == []


#: Folders of code, and the most lines of a file and of a function in them.
CODE = ("meshlang", "strategies", "models", "tests", "benchmarks")
LONGEST_FILE, LONGEST_FUNCTION = 400, 40


def test_files_and_functions_are_short() -> None:
    """No file is longer than 400 lines and no function, with its docstring, than 40: what grew is split by idea."""
    long = []
    for path in (path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py"))):
        text, name = path.read_text(), path.relative_to(ROOT).as_posix()
        long += [f"{name}: {len(text.splitlines())} lines"] if len(text.splitlines()) > LONGEST_FILE else []
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                long += [f"{name}:{node.lineno} {node.name}: {lines} lines"] if lines > LONGEST_FUNCTION else []
    assert long == []
