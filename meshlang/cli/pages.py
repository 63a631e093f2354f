"""The pages of findings, by code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..near import near

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def codes() -> tuple[str, ...]:
    """Every code that a finding may have, sorted: those that have a page."""
    names = (page.name for page in _pages().iterdir())
    return tuple(sorted(name.removesuffix(".md") for name in names if name.endswith(".md")))


def _pages() -> Traversable:
    from importlib.resources import files

    return files("meshlang").joinpath("explain")


def page(code: str) -> str:
    """The text of a code's page; a code that there is not is wrong usage."""
    known = codes()
    if code not in known:
        guess = near(code, known)
        hint = f"; did you mean `{guess}`?" if guess else "."
        raise click.UsageError(f"no finding has the code `{code}`{hint} Codes: {', '.join(known)}")
    return _pages().joinpath(f"{code}.md").read_text(encoding="utf-8")
