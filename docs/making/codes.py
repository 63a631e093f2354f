"""A page for each code of a finding: the one that `meshlang explain CODE` prints."""

from __future__ import annotations

from meshlang.cli import codes
from meshlang.cli.pages import page as text_of

from .markdown import page, table, toctree


def pages() -> dict[str, str]:
    """The codes, and a table of them."""
    texts = {name: text_of(name) for name in codes()}
    rows = [(f"[`{name}`](codes/{name}.md)", _says(text)) for name, text in texts.items()]
    says = "Each finding has one of these codes. `meshlang explain CODE` prints the page, without a network."
    made = {f"codes/{name}.md": text for name, text in texts.items()}
    return {
        **made,
        "codes.md": page("Findings", says, table(("code", "what"), rows), toctree(f"codes/{n}" for n in texts)),
    }


def _says(text: str) -> str:
    """The paragraph under the title."""
    return text.split("\n\n")[1]
