"""What there is to write: `meshlang schema`, `meshlang strategies`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from ..registry import PluginError, Plugins, Registry


@click.command("schema", short_help="JSON Schema of specs or cards, for editors.")
@click.argument("what", type=click.Choice(["spec", "card"]), default="spec")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write here; default: print.")
def schema_command(what: str, output: str | None) -> None:
    """The JSON Schema of specs, with the plugins that are installed, or of cards; for editors.

    An editor with tombi or taplo reads it from the first line of a file: #:schema FILE
    """
    import json

    from ..card.schema import card_schema
    from ..language.schema import schema

    text = json.dumps(schema(Plugins()) if what == "spec" else card_schema(), indent=2) + "\n"
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"cannot write {output}: {error.strerror}") from error
    click.echo(f"wrote {output}")


@click.command("strategies", short_help="The strategies and schedules that are installed.")
def strategies_command() -> None:
    """Strategies and schedules that are installed, and who brings them."""
    plugins = Plugins()
    for title, registry in (("strategies", plugins.strategies), ("schedules", plugins.schedules)):
        click.echo(title)
        for line in _installed(registry):
            click.echo(f"  {line}")


def _installed(registry: Registry) -> Iterable[str]:
    if not registry.names():
        yield "none"
    for name in registry.names():
        try:
            first = (registry.load(name).__doc__ or "").strip().partition("\n")[0]
            yield f"{name} ({registry.distribution(name)}): {first}"
        except PluginError as error:
            yield f"{name}: cannot be used: {error}"
