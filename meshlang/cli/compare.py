"""`meshlang diff`: what changes from one spec to another."""

from __future__ import annotations

import click

from .request import RANKS, laid_over, planned, request


@click.command("diff")
@click.argument("before", type=click.Path(dir_okay=False))
@click.argument("after", type=click.Path(dir_okay=False))
@RANKS
@laid_over
def diff_command(before: str, after: str, ranks: int | None, sets: tuple[str, ...], on: str | None, form: str) -> None:
    """What changes from one spec to another, with the bytes of state that move."""
    from ..plan.diff import ManyRanksError, diff
    from ..report.diff import diff_text

    one, other = (planned(request(spec, ranks=ranks, sets=sets, on=on), form) for spec in (before, after))
    try:
        found = diff(one, other)
    except ManyRanksError as error:
        raise click.UsageError(str(error)) from error
    click.echo(diff_text(found, (*one.by_fqn, *other.by_fqn)), nl=False)
