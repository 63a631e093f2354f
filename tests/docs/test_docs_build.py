"""`make docs`: the pages build without a warning, and open without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from walks import DOCS, PAGES, ROOT

#: What a page loads by itself; links that a reader clicks are another matter.
_LOADED = re.compile(r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']([^"']+)|<link\b[^>]*\bhref=["']([^"']+)""")
_STYLED = re.compile(r"""url\(["']?([^"')]+)|@import\s+["']([^"']+)""")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages as html, built of a copy as `make docs` does."""
    top = tmp_path_factory.mktemp("site")
    ignore = shutil.ignore_patterns("reference", "_build", "__pycache__")
    shutil.copytree(DOCS, top / "docs", ignore=ignore)
    for name in ("meshlang", "examples"):
        (top / name).symlink_to(ROOT / name)
    options = ["-W", "--keep-going", "-q", "-b", "html"]
    command = [sys.executable, "-m", "sphinx", *options, str(top / "docs"), str(top / "html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return top / "html"


def test_every_page_is_built(built: Path) -> None:
    """Each page by hand, each page of the reference and each code has its html."""
    for page in PAGES:
        assert (built / page.relative_to(DOCS).with_suffix(".html")).is_file()
    assert (built / "reference" / "spec.html").is_file()
    assert (built / "reference" / "codes" / "unknown-axis.html").is_file()


def test_pages_load_nothing_from_a_network(built: Path) -> None:
    """No page and no style sheet names another machine's script, style, font or picture."""
    for path in built.rglob("*.html"):
        loaded = {a or b for a, b in _LOADED.findall(path.read_text(encoding="utf-8"))}
        assert loaded
        assert not [address for address in loaded if re.match(r"\w+://|//", address)], path
    for path in built.rglob("*.css"):
        loaded = {a or b for a, b in _STYLED.findall(path.read_text(encoding="utf-8"))}
        assert not [address for address in loaded if re.match(r"https?://|//", address)], path


def test_names_of_files_stand_over_their_blocks(built: Path) -> None:
    """What stands behind a fence is a caption, and not part of the text."""
    text = (built / "tutorial.html").read_text(encoding="utf-8")
    assert re.search(r'class="caption-text">run\.toml<', text)
    assert "```" not in text


def test_the_makefile_builds_the_same() -> None:
    """`make docs` takes warnings for errors."""
    assert re.search(r"^docs:.*\n\t\$\(PYTHON\) -m sphinx -W ", (ROOT / "Makefile").read_text(), re.MULTILINE)
