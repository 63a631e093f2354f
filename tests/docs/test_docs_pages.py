"""The pages of docs/ do what they say; see `walks`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from walks import DOCS, PAGES, Step, inside, steps, walk

#: What an editor finds the language's keys by, on the first line of each spec.
SCHEMA = "#:schema spec.schema.json\n"


def _needs_more(step: Step) -> bool:
    """Left to `test_walks`: what starts ranks, and what changes the environment that it runs in."""
    begins = re.match(r"python3 -m venv|\. \.venv|pip install \.\./|mkdir|cd|python -m meshlang_models", step.text)
    return step.launches or (step.kind == "quiet" and begins is not None)


@pytest.mark.parametrize("page", PAGES, ids=[path.relative_to(DOCS).with_suffix("").as_posix() for path in PAGES])
def test_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    """Every command of a page prints what stands under it, every spec and every script is accepted."""
    walk(page, tmp_path, inside(tmp_path), leave=_needs_more)


@pytest.mark.parametrize("page", PAGES, ids=[path.relative_to(DOCS).with_suffix("").as_posix() for path in PAGES])
def test_specs_begin_with_their_schema(page: Path) -> None:
    """Each whole spec of a page begins with the line that an editor reads."""
    files = [step.text for step in steps(page.read_text(encoding="utf-8")) if step.kind == "file"]
    specs = [text for text in files if re.search(r"^meshlang = 1$", text, re.MULTILINE)]
    assert [text for text in specs if not text.startswith(SCHEMA)] == []
