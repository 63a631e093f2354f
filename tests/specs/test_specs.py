"""Runs every literate case of this folder; see `literate`."""

from __future__ import annotations

import re
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
    """Codes that stand in the source as literals, where a finding is made."""
    found: set[str] = set()
    for path in [*ROOT.glob("meshlang/**/*.py"), *ROOT.glob("strategies/**/*.py")]:
        text = path.read_text(encoding="utf-8")
        found.update(re.findall(r"""\bcode="([a-z0-9-]+)\"""", text))
        found.update(re.findall(r"""(?:_find|_add|\.finding|\.refuse)\(\s*"([a-z0-9-]+)\"""", text))
        for stem in re.findall(r"""\bcode=f"([a-z-]+)\{kind\}\"""", text):
            found.update(f"{stem}{kind}" for kind in re.findall(r"""_load\("([a-z]+)\"""", _readers()))
    return found


def _readers() -> str:
    return (ROOT / "meshlang" / "language" / "reader.py").read_text(encoding="utf-8")
