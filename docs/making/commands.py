"""Every command, by its own help."""

from __future__ import annotations

from collections.abc import Iterator

import click

from meshlang.cli import COMMANDS, main

from .markdown import fenced, page


def pages() -> dict[str, str]:
    """One page of all commands."""
    context = click.Context(main, info_name="meshlang", max_content_width=100, terminal_width=100)
    parts = [part for name in COMMANDS for part in _command(context, name, main.get_command(context, name), 2)]
    says = "Exit codes: 0, fine; 1, findings; 2, wrong usage. All but `card` and `launch` load no torch."
    return {"commands.md": page("Commands", says, *parts)}


def _command(parent: click.Context, name: str, command: click.Command | None, level: int) -> Iterator[str]:
    assert command is not None
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        max_content_width=100,
        terminal_width=100,
        help_option_names=["-h", "--help"],
    )
    yield f"{'#' * level} {context.command_path}"
    yield fenced(command.get_help(context))
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            yield from _command(context, inner, command.get_command(context, inner), level + 1)
