"""What there is to write: `meshlang schema`, `meshlang strategies`."""

from __future__ import annotations

from collections.abc import Iterable

import click

from ..registry import PluginError, Plugins, Registry


@click.command("schema")
def schema_command() -> None:
    """The JSON Schema of the language, for editors."""
    import json

    from ..language.schema import schema

    click.echo(json.dumps(schema(Plugins()), indent=2))


@click.command("strategies")
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
