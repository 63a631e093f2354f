"""Small pieces of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(word: str) -> str:
    """A word of the language."""
    return f"`{word}`"


def fenced(text: str, language: str = "text", name: str = "") -> str:
    """A block, with the name of its file over it where it has one."""
    fence = "````" if "```" in text else "```"
    return f"{fence}{' '.join(filter(None, (language, name)))}\n{text.rstrip()}\n{fence}\n"


def page(title: str, *parts: str) -> str:
    """A page of some parts, with a blank line between them."""
    return "\n\n".join([f"# {title}", *(part.strip("\n") for part in parts if part.strip())]) + "\n"


def toctree(names: Iterable[str]) -> str:
    """Pages below this one, for the sidebar."""
    return "```{toctree}\n:hidden:\n\n" + "".join(f"{name}\n" for name in names) + "```\n"


def paragraphs(doc: str | None) -> str:
    """A docstring as Markdown: its indented parts are text to be read as it stands, its attributes left out."""
    from inspect import cleandoc

    found = [block for block in cleandoc(doc or "").split("\n\n") if not block.startswith("Attributes:")]
    blocks = [fenced(cleandoc(block)) if block.startswith("    ") else block for block in found]
    return "\n\n".join(block.strip("\n") for block in blocks)
