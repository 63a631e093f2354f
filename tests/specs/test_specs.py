"""Runs every literate case of this folder; see `literate`."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from literate import ROOT, UPDATE, Case, cases, run, updated

from meshlang.cli import codes

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.md"))
CASES = [(path, case) for path in FILES for case in cases(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("path", "case"), CASES, ids=[f"{path.stem}: {case.title}" for path, case in CASES])
def test_case_prints_its_text(path: Path, case: Case, tmp_path: Path) -> None:
    """A case prints exactly the text under it, and exits with 0, 1 or 2 accordingly."""
    code, output = run(case, tmp_path)
    if UPDATE:
        path.write_text(updated(path.read_text(encoding="utf-8"), case.title, output), encoding="utf-8")
        return
    assert output == case.expected
    assert code == case.exit_code


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_titles_differ(path: Path) -> None:
    """No two cases of one file have the same title."""
    titles = [case.title for case in cases(path.read_text(encoding="utf-8"))]
    assert sorted(set(titles)) == sorted(titles)


def test_every_code_has_a_case() -> None:
    """The codes that the cases show are those that have a page, and those that the source can give."""
    shown = {code for _, case in CASES for code in case.codes}
    assert shown == set(codes()) == source_codes()


def source_codes() -> set[str]:
    """Codes that stand in the source as words, where a finding is made."""
    paths = [*ROOT.glob("meshlang/**/*.py"), *ROOT.glob("strategies/**/*.py")]
    calls = [node for path in paths for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    found = {code for call in calls for code in _codes_of(call)}
    return found | {f"unknown-{kind}" for call in calls if _name(call) == "_load" for kind in _words(call.args[:1])}


def _codes_of(call: ast.Call) -> list[str]:
    """The code that a call gives a finding: by keyword, or first to a function that makes one."""
    named = [word for keyword in call.keywords if keyword.arg == "code" for word in _either(keyword.value)]
    first = call.args[:1] if _name(call) in ("_find", "_finding", "finding", "add", "CheckpointError") else []
    return _words(named) + [word for word in _words(first) if re.fullmatch("[a-z0-9]+(-[a-z0-9]+)+", word)]


def _either(node: ast.expr) -> list[ast.expr]:
    return [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _words(nodes: Sequence[ast.expr]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
