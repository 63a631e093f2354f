"""The examples, as they lie in the repository."""

from __future__ import annotations

import re

from .markdown import ROOT, fenced, page


def pages() -> dict[str, str]:
    """One page of all examples."""
    parts = ["Each is held in tests: `meshlang check examples/*.toml` finds nothing in them."]
    for path in sorted((ROOT / "examples").glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        says, rest = _comment(text)
        parts += [f"## {path.name}", says, fenced(rest, "toml")]
    return {"examples.md": page("Examples", *parts)}


def _comment(text: str) -> tuple[str, str]:
    """(what an example says of itself, the rest)."""
    lines = text.splitlines(keepends=True)
    first = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    said = [line.removeprefix("#").strip() for line in lines[:first] if not line.startswith("#:")]
    words = re.sub(r"(?<![`\w])(\[\[?[\w.]+\]\]?)(?![`\w])", r"`\1`", " ".join(said))
    return words, "".join(lines[first:])
