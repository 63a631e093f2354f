"""`meshlang import`: what another system says of parallelism, as a spec."""

from __future__ import annotations

import sys

import click

from ..card.find import Cards
from ..compiler import Request, check, find_model, load
from ..diagnostics import Bag
from ..source import Source
from .request import FORMAT, RANKS, show


@click.command("import", context_settings={"ignore_unknown_options": True})
@click.option("--titan", is_flag=True, help="The rest of the line is torchtitan's flags.")
@click.option("--model", metavar="CARD/FLAVOR", help="What the spec calls the model.")
@RANKS
@FORMAT
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def import_command(titan: bool, model: str | None, ranks: int | None, form: str, flags: tuple[str, ...]) -> None:
    """Print the spec that equals a set of torchtitan's flags, or name those that no spec can express.

    meshlang import --titan --model llama3/8B --parallelism.tensor_parallel_degree 8
    """
    if not titan:
        raise click.UsageError("say what to read: --titan FLAGS...")
    if model is None:
        raise click.UsageError(
            f"--model CARD/FLAVOR says whose dimensions are cut; cards: {', '.join(Cards().names())}"
        )
    _titan(flags, model, ranks, form)


def _titan(flags: tuple[str, ...], name: str, ranks: int | None, form: str) -> None:
    from ..foreign.titan import imported

    bag = Bag()
    model = find_model(load(Request(source=_smallest(name))), Request(source=_smallest(name)), bag)
    found = imported(flags, name=name, model=model, ranks=ranks, bag=bag) if model is not None else None
    if found is None:
        show(list(bag), form)
        sys.exit(1)
    request = Request(source=Source(name="the spec of these flags", text=found.text), ranks=ranks or found.ranks)
    if request.ranks is not None and (wrong := check(request)):
        show(wrong, form)
        sys.exit(1)
    click.echo(found.text, nl=False)


def _smallest(name: str) -> Source:
    """A spec that names a model, to find it as any spec does."""
    import json

    return Source(name="--model", text=f"meshlang = 1\nmodel = {json.dumps(name)}\n[mesh]\ndp = 1\n")
