"""The command line. Exit code 0: fine; 1: findings; 2: wrong usage.

Nothing here knows torch but `card init`, `card check` and `launch`, which load it inside. A command
is loaded when it is called, and what it needs and others do not is imported inside it: a check is
over in the time that imports take.
"""

from __future__ import annotations

from importlib import import_module

import click

from .pages import codes

__all__ = ["codes", "main"]

#: Commands by name: the module of this folder that has it, and its name there.
COMMANDS = {
    "card": ("card", "card_group"),
    "check": ("check", "check_command"),
    "diff": ("compare", "diff_command"),
    "explain": ("explain", "explain_command"),
    "fmt": ("fmt", "fmt_command"),
    "import": ("bring", "import_command"),
    "launch": ("launch", "launch_command"),
    "mesh": ("mesh", "mesh_command"),
    "plan": ("plan", "plan_command"),
    "report": ("report", "report_command"),
    "schedule": ("schedule", "schedule_command"),
    "schema": ("about", "schema_command"),
    "strategies": ("about", "strategies_command"),
    "suggest": ("suggest", "suggest_command"),
}


class Commands(click.Group):
    """A group whose commands are loaded when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, loaded now; None where there is no such name."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name]
        return getattr(import_module(f".{module}", __name__), name)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="meshlang")
def main() -> None:
    """Say how a model is spread over machines, and have it checked before it runs."""
