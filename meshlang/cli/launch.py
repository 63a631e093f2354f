"""`meshlang launch`: check, then train. Loads torch inside, after the check."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from ..diagnostics import SpecError
from .progress import progress
from .request import RANKS, SPEC, laid_over, planned, request, show


def _torchruns(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of torchrun that a launch hands on."""
    count = click.IntRange(min=0)
    options = (
        click.option("--max-restarts", type=count, default=0, help="After a failure, resume so often."),
        click.option(
            "--on-interrupt",
            type=click.Choice(["end", "checkpoint"]),
            default="end",
            show_default=True,
            help="After Ctrl-C or SIGTERM: end at once; or after the step, saved. A second one ends at once.",
        ),
        click.option("--nnodes", type=click.IntRange(min=1), default=1, help="Nodes; run the same command on each."),
        click.option("--node-rank", type=count, help="This node's, where torchrun does not number them itself."),
        click.option("--rdzv-endpoint", metavar="HOST:PORT", help="Where nodes meet; with it alone, over c10d."),
        click.option("--rdzv-backend", metavar="NAME", help="How nodes meet: c10d, static."),
        click.option("--rdzv-id", metavar="NAME", help="Which launch this is, for nodes that meet."),
        click.option("--master-addr", metavar="HOST", help="Of node 0, where they do not meet by --rdzv-endpoint."),
        click.option("--master-port", type=click.IntRange(min=0, max=65535), help="On node 0."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(
    "launch", short_help="Check SPEC, then train on torchtitan.", context_settings={"ignore_unknown_options": True}
)
@SPEC
@RANKS
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Default: cuda where there is one, else cpu.")
@_torchruns
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
@laid_over
def launch_command(
    spec: str,
    ranks: int | None,
    device: str | None,
    flags: tuple[str, ...],
    sets: tuple[str, ...],
    on: str | None,
    form: str,
    **nodes: Any,
) -> None:
    """Check SPEC, then train on torchtitan: meshlang launch SPEC [-- torchtitan's own flags]."""
    asked = request(spec, ranks=ranks, sets=sets, on=on, launch=True)
    planned(asked, form)
    with progress("launch", 1, "torch"):
        from ..runtime.launch import launch
        from ..runtime.torchrun import Torchrun, TorchrunError

    try:
        sys.exit(launch(asked, flags=flags, device=device, torchrun=Torchrun(**nodes), watched=progress))
    except TorchrunError as error:
        raise click.UsageError(str(error)) from error
    except SpecError as error:
        show(error.diagnostics, form)
        sys.exit(1)
