"""How far long work is: click's bar on a terminal, nothing in a pipe or a file.

It is on stderr, and gone when the work is done: what a command prints is the same either way.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click

#: To the line above, and clear it: click ends a bar with a new line.
_AWAY = "\033[1A\033[2K"
#: Columns of a line without the bar, with a text of usual length; and with the bar, without what is being done.
_LINE, _OTHERS = 44, 70


class Tick(Protocol):
    """Called when a step is done, with what begins now where that has a name."""

    def __call__(self, doing: str = "", /) -> None:
        """One step more is done."""
        ...


@contextmanager
def progress(text: str, total: int, first: str = "") -> Iterator[Tick]:
    """Shows how many of `total` steps are done; each call of what it gives is one more.

    Args:
        text: what the steps are, in few words.
        first: what the first step does, where steps have names.

    ```python
    with progress("plans", len(specs)) as tick:
        for spec in specs:
            compile(spec)
            tick()
    ```
    """
    watched = sys.stderr.isatty()
    bar = click.progressbar(
        length=max(total, 1),
        label=text,
        file=sys.stderr,
        hidden=not watched,
        show_pos=True,
        item_show_func=_fitting,
        width=min(26, max(1, _columns() - _LINE)),
    )
    bar.current_item = first

    def tick(doing: str = "", /) -> None:
        bar.update(int(bar.pos < total), doing)

    try:
        with bar:
            yield tick
    finally:
        if watched:
            click.echo(_AWAY, file=sys.stderr, nl=False)


def _fitting(doing: str | None) -> str | None:
    """As much of a text as the terminal's line has room for."""
    return (doing or "")[: max(0, _columns() - _OTHERS)] or None


def _columns() -> int:
    return shutil.get_terminal_size().columns
