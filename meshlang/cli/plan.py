"""`meshlang plan`: what follows from a spec, or whether it is still what a golden file says."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..plan.ir import Plan
from ..source import head
from .request import RANKS, SPEC, laid_over, planned, request

#: Characters of a golden file that are read; one of a plan has some thousands.
MOST_LOCKED = 2**22
#: Characters of a line that is shown as different.
LONGEST = 1000


@click.command("plan", short_help="Each tensor's layout, each collective with its bytes.")
@SPEC
@RANKS
@click.option("--rank", type=int, help="Whose local shapes to show.")
@click.option("--json", "as_json", is_flag=True, help="The whole plan as one JSON document.")
@click.option(
    "--lock", type=click.Path(dir_okay=False), help="Hold the plan against a golden file; make it if missing."
)
@click.option("--update", is_flag=True, help="With --lock: write the golden file anew.")
@laid_over
def plan_command(
    spec: str,
    ranks: int | None,
    rank: int | None,
    as_json: bool,
    lock: str | None,
    update: bool,
    sets: tuple[str, ...],
    on: str | None,
    form: str,
) -> None:
    """Every tensor's layout, every redistribution and collective with its bytes, state per rank."""
    if update and lock is None:
        raise click.UsageError("--update goes with --lock FILE")
    if as_json and lock is not None:
        raise click.UsageError("--json prints the plan, and --lock FILE holds it against a file: one of them")
    if rank is not None and lock is not None:
        raise click.UsageError("--rank chooses whose shapes are printed, and --lock FILE holds those of rank 0")
    plan = planned(request(spec, ranks=ranks, sets=sets, on=on), form, rank)
    if lock is not None:
        sys.exit(_lock(plan, Path(lock), update))
    if as_json:
        from ..plan.data import to_json

        click.echo(to_json(plan, rank=rank or 0, indent=1))
        return
    from ..report.plan import plan_text

    click.echo(plan_text(plan, rank=rank or 0), nl=False)


def _written(path: Path) -> str:
    """The golden file, or so much of it as could be one."""
    return head(path, MOST_LOCKED + 1).decode("utf-8", errors="replace")


def _lock(plan: Plan, path: Path, update: bool) -> int:
    from difflib import unified_diff

    from ..report.lock import lock_text

    text = lock_text(plan)
    try:
        old = None if update or not path.exists() else _written(path)
        if old is None:
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"cannot use {path}: {error.strerror}") from error
    if old is None:
        click.echo(f"wrote {path}")
        return 0
    if old.splitlines() == text.splitlines():
        return 0
    if len(old) > MOST_LOCKED or "lock = " not in old:
        raise click.UsageError(f"{path} is no lock of a plan; `--update` would write one in its place")
    lines = unified_diff(old.splitlines(), text.splitlines(), str(path), "the plan", lineterm="")
    click.echo("\n".join(line if len(line) <= LONGEST else f"{line[:LONGEST]}..." for line in lines))
    click.echo(f"the plan differs from {path}; `--update` writes it anew")
    return 1
