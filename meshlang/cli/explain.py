"""`meshlang explain`: the page of a finding, or who decided each dimension of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from ..language.pattern import Pattern, PatternError
from ..near import near
from .pages import codes, page
from .request import RANKS, laid_over, planned, request


def _subjects(context: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """For the shell: codes that begin so, or any file."""
    found = [CompletionItem(code) for code in codes() if code.startswith(begun)]
    return found or [CompletionItem(begun, type="file")]


@click.command("explain", short_help="The page of a finding, or who decided each dimension.")
@click.argument("subject", shell_complete=_subjects)
@click.argument("fqn", required=False)
@RANKS
@laid_over
def explain_command(
    subject: str, fqn: str | None, ranks: int | None, sets: tuple[str, ...], on: str | None, form: str
) -> None:
    """`explain CODE`: the page of a finding. `explain SPEC FQN`: who decided each dimension of a tensor.

    FQN names a tensor or a module. Of a pattern, such as `layers.*.attention.wo.weight`, the first is told.
    """
    if fqn is None:
        if subject not in codes() and Path(subject).is_file():
            raise click.UsageError(f"`meshlang explain {subject} FQN`: of a spec, say which tensor or module")
        click.echo(page(subject), nl=False)
        return
    from ..report.tensor import tensor_text

    plan = planned(request(subject, ranks=ranks, sets=sets, on=on), form)
    known = list(dict.fromkeys([*plan.by_fqn, *(edge.module for edge in plan.edges)]))
    text = tensor_text(plan, _first(fqn, known))
    if text is None:
        guess = _meant(fqn, known)
        raise click.UsageError(f"the model has no `{fqn}`" + (f"; did you mean `{guess}`?" if guess else ""))
    click.echo(text, nl=False)


def _first(fqn: str, known: Sequence[str]) -> str:
    """The first name that a pattern stands for: a plan prints `layers.*.wo` for all that are alike."""
    try:
        pattern = Pattern.parse(fqn)
    except PatternError:
        return fqn
    return fqn if fqn in known else next(filter(pattern.matches, known), fqn)


def _meant(fqn: str, known: Sequence[str]) -> str | None:
    """The first name that ends so, or else a near one."""
    return next((name for name in known if fqn and name.endswith(f".{fqn}")), None) or near(fqn, known)
