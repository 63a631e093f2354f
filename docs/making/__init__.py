"""What Sphinx needs of ours: names of files over their blocks, and the reference, made of the code at each build."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from . import api, codes, commands, examples, tables

#: Pages of the reference, by the functions that make them.
PAGES = (tables.pages, commands.pages, codes.pages, examples.pages, api.pages)

_NAMED = re.compile(r"^```(\w+) ([^\s`]+)( [^\s`]+)?$", re.MULTILINE)


def reference() -> dict[str, str]:
    """Path below docs/reference -> the text of a page."""
    return {path: text for pages in PAGES for path, text in pages().items()}


def captioned(text: str) -> str:
    """A page in which the name of a file stands over its block: plain Markdown keeps it behind the fence."""

    def caption(match: re.Match[str]) -> str:
        name, more = match[2], (match[3] or "").strip()
        says = f"{name}, at its end" if more == "+" else name
        return f"```{{code-block}} {match[1]}\n:caption: {says}\n"

    return _NAMED.sub(caption, text)


def setup(app: Any) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("builder-inited", _write)
    app.connect("source-read", _caption)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _caption(app: Any, name: str, source: list[str]) -> None:
    source[0] = captioned(source[0])


def _write(app: Any) -> None:
    """Write what changed, and drop pages of what is gone."""
    folder, made = Path(app.srcdir) / "reference", reference()
    for path in [*folder.rglob("*.md")]:
        if path.relative_to(folder).as_posix() not in made:
            path.unlink()
    for name, text in made.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
