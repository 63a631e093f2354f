"""Each page on a code: its spec has that code, with the message that stands there; its mended one has none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from literate import ROOT, UPDATE, page, run, with_output

PAGES = sorted((ROOT / "meshlang" / "explain").glob("*.md"))
NAMES = [path.stem for path in PAGES]


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_broken_spec_has_the_code(path: Path, tmp_path: Path) -> None:
    """The spec of a page has the page's code and no other, with exactly the message under it."""
    text = path.read_text(encoding="utf-8")
    broken, _ = page(text)
    code, output = run(broken, tmp_path)
    if UPDATE:
        head, mark, rest = text.partition("## Mended\n")
        path.write_text(with_output(head, output) + mark + rest, encoding="utf-8")
        return
    assert output == broken.expected
    assert set(re.findall(r"^error\[([a-z0-9-]+)\]", output, re.MULTILINE)) == {path.stem}
    assert code == int("python" not in broken.command)


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_mended_spec_is_accepted(path: Path, tmp_path: Path) -> None:
    """With what a page says the spec is checked in silence."""
    broken, mended = page(path.read_text(encoding="utf-8"))
    assert mended.files != broken.files or mended.command != broken.command
    assert run(mended, tmp_path) == (0, "")


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_page_is_short_and_titled(path: Path) -> None:
    """A page is titled by its code, says what and why in a paragraph each, and names its mending."""
    title, what, why, *_ = path.read_text(encoding="utf-8").split("\n\n")
    assert title == f"# {path.stem}"
    assert not any(text.startswith(("#", "```")) for text in (what, why))
    assert len(what) + len(why) < 800
