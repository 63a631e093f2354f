"""`meshlang diff`: what changes from one spec to another."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from .request import RANKS, laid_over, planned, request


@click.command("diff", short_help="What changes from one spec to another, with the bytes.")
@click.argument("before", type=click.Path(dir_okay=False))
@click.argument("after", type=click.Path(dir_okay=False))
@RANKS
@click.option("--json", "as_json", is_flag=True, help="Everything that differs as one document.")
@laid_over
def diff_command(
    before: str, after: str, ranks: int | None, as_json: bool, sets: tuple[str, ...], on: str | None, form: str
) -> None:
    """What changes from one spec to another: bytes of state that move, calls, memory of the fullest rank."""
    from ..plan.diff import ManyRanksError, diff
    from ..report.diff import diff_text

    one, other = (planned(request(spec, ranks=ranks, sets=sets, on=on), form) for spec in (before, after))
    try:
        found = diff(one, other)
    except ManyRanksError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(asdict(found), indent=1))
        return
    click.echo(diff_text(found, (*one.by_fqn, *other.by_fqn)), nl=False)
