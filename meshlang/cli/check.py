"""`meshlang check`: all errors of specs, or silence."""

from __future__ import annotations

import re
import sys

import click

from ..compiler import check
from ..diagnostics import Diagnostic
from .request import laid_over, request, show


def _numbers(context: click.Context, option: click.Parameter, value: str | None) -> tuple[int | None, ...]:
    if value is None:
        return (None,)
    words = value.split(",")
    numbers = [int(word) for word in words if re.fullmatch(r"\s*[0-9]{1,18}\s*", word)]
    if len(numbers) < len(words) or 0 in numbers:
        raise click.BadParameter("a number of ranks, or several with commas between: 8,64")
    return tuple(numbers)


@click.command("check")
@click.argument("specs", nargs=-1, required=True, type=click.Path(dir_okay=False))
@click.option("--ranks", callback=_numbers, metavar="N,N", help="Ranks to check for; several with commas.")
@laid_over
def check_command(
    specs: tuple[str, ...], ranks: tuple[int | None, ...], sets: tuple[str, ...], on: str | None, form: str
) -> None:
    """All errors of each SPEC, or silence."""
    found: list[Diagnostic] = []
    for spec in specs:
        for count in ranks:
            found += [each for each in check(request(spec, ranks=count, sets=sets, on=on)) if each not in found]
    if found or form == "json":
        show(found, form)
    sys.exit(1 if found else 0)
