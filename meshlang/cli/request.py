"""What commands on a spec share: their options, the plan that is asked for, or its findings and the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from ..compiler import Request, check, compile
from ..diagnostics import Diagnostic, SpecError
from ..excerpt import cut
from ..plan.ir import Plan

SPEC = click.argument("spec", type=click.Path(dir_okay=False))
RANKS = click.option("--ranks", type=click.IntRange(min=1), help="Ranks of the whole mesh.")
SETS = click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Lay one key over the spec: mesh.tp=8.")
ON = click.option("--on", metavar="NAME", help="Lay the machine [topology.on.NAME] over the spec.")
FORMAT = click.option(
    "--format", "form", type=click.Choice(["text", "short", "json", "github"]), default="text", help="Of findings."
)


def _outside(context: click.Context, option: click.Parameter, allowed: bool) -> None:
    context.meta[OUTSIDE] = allowed


#: Where the answer to `--allow-outside` is kept, for every request of a command.
OUTSIDE = "meshlang.outside"
ANYWHERE = click.option(
    "--allow-outside",
    is_flag=True,
    expose_value=False,
    callback=_outside,
    help="Read includes, cards and orders that lie outside the spec's folder, too.",
)


def laid_over(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that every command on a spec shares."""
    for option in (FORMAT, ANYWHERE, ON, SETS):
        command = option(command)
    return command


def request(spec: str, **options: Any) -> Request:
    """What the command line asks for; a file that cannot be read is wrong usage.

    Whoever wrote the spec says with it which files are read: they lie in its folder, unless the caller allows others.
    """
    anywhere = click.get_current_context().meta.get(OUTSIDE, False)
    try:
        return Request.of(spec, inside=None if anywhere else str(Path(spec).parent), **options)
    except OSError as error:
        raise click.UsageError(f"cannot read {cut(spec)}: {error.strerror}") from error


def findings(asked: Request, form: str) -> NoReturn:
    """Print the findings of a spec that has some, with fixes that were tried, and stop."""
    show(check(asked), form)
    sys.exit(1)


def show(found: Sequence[Diagnostic], form: str) -> None:
    """Print findings in one of the forms."""
    from ..render import render

    color = form == "text" and sys.stdout.isatty()
    click.echo(render(found, form, color), nl=False)  # pyright: ignore[reportArgumentType]


def planned(asked: Request, form: str, rank: int | None = None) -> Plan:
    """The plan, or the findings and the end."""
    try:
        plan = compile(asked)
    except SpecError:
        findings(asked, form)
    if rank is not None and not 0 <= rank < plan.ranks:
        raise click.UsageError(f"--rank {rank}: the mesh has ranks 0 to {plan.ranks - 1}")
    return plan
