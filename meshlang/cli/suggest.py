"""`meshlang suggest`: specs for a model on so many ranks, the fastest first, by what their plans cost."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..compiler import Request, find_model, load
from ..diagnostics import Bag, Diagnostic, Label, SpecError, counted
from ..source import Source
from .request import FORMAT, show

if TYPE_CHECKING:
    from ..suggest.asked import Numbers
    from ..suggest.search import Asked, Found

#: Tokens of a sequence where nobody says.
SEQ = "8192"


class _Positive(click.FloatRange):
    """A finite number above nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


_POSITIVE = _Positive(min=0, min_open=True, max=1e9)
_TIME = _Positive(min=0, max=1e9)
_SHARE = _Positive(min=0, min_open=True, max=1)
_PART = _Positive(min=0, max=1)

#: Assumptions, and what each may be.
_TYPES = {
    "tflops": _POSITIVE,
    "products": _SHARE,
    "attention": _SHARE,
    "memory_speed": _POSITIVE,
    "link": _POSITIVE,
    "link_between": _POSITIVE,
    "latency": _TIME,
    "latency_between": _TIME,
    "overlap": _PART,
    "reserve": _Positive(min=0, max=1, max_open=True),
}


def _assumptions(command: Callable[..., Any]) -> Callable[..., Any]:
    """An option for each assumption, with its unit."""
    from ..suggest.machine import Machine
    from ..suggest.told import assumptions

    for name, value, unit, says in reversed(assumptions(Machine())):
        option = click.option(
            f"--{name.replace('_', '-')}",
            name,
            type=_TYPES[name],
            default=value,
            show_default=True,
            help=f"{unit[0].upper()}{unit[1:]} {says}.",
        )
        command = option(command)
    return command


@click.command("suggest", short_help="Specs for MODEL that fit so many ranks, fastest first.")
@click.argument("model")
@click.option("--ranks", required=True, metavar="N", help="Of the whole mesh.")
@click.option("--memory", required=True, metavar="SIZE", help="Of each rank, such as 80GiB.")
@click.option("--seq", default=SEQ, show_default=True, metavar="TOKENS", help="Of a sequence.")
@click.option("--batch", metavar="SEQUENCES", help="A step, over all ranks.  [default: about 4 Mi tokens]")
@click.option("--ranks-per-node", default="8", show_default=True, metavar="N", help="That share a node.")
@click.option("--block-size", metavar="TOKENS", help="Of a block, in block diffusion.  [default: 32]")
@click.option("-n", "count", type=click.IntRange(1, 20), default=5, show_default=True, help="How many specs.")
@click.option("-o", "folder", type=click.Path(file_okay=False), help="Write the specs here, in place of printing them.")
@click.option("--json", "as_json", is_flag=True, help="Everything as one document.")
@_assumptions
@FORMAT
def suggest_command(
    model: str, count: int, folder: str | None, as_json: bool, form: str, batch: str | None, **options: Any
) -> None:
    """Specs for MODEL, a card's flavor or FILE#FLAVOR, that fit so many ranks: the fastest first.

    Each is compiled and checked; what a step takes follows from its plan and the assumptions, and is not measured.
    """
    texts = {name: options.pop(name) for name in ("ranks", "memory", "seq", "ranks_per_node", "block_size")}
    given = {name: text for name, text in {**texts, "batch": batch}.items() if text is not None}
    bag = Bag()
    asked = _asked(model, given, options, folder or ".", bag)
    if asked is None or len(bag):
        show(list(bag), form)
        sys.exit(1)
    search, numbers = asked
    found = _found(search, count)
    if not found.best:
        show([_nothing(search, found, numbers)], form)
        sys.exit(1)
    _print(search, found, folder, as_json)


def _asked(
    model: str, given: dict[str, str], assumed: dict[str, float], folder: str, bag: Bag
) -> tuple[Asked, Numbers] | None:
    """The model and the numbers, or findings."""
    from ..suggest.asked import in_blocks, part_of_node, read_numbers, usual_batch
    from ..suggest.machine import Machine
    from ..suggest.search import Asked
    from ..suggest.shape import Shape
    from ..suggest.space import BLOCK_SIZE, Run

    source = Source(name="--model", text=f"meshlang = 1\nmodel = {json.dumps(model)}\n[mesh]\ndp = 1\n")
    request, numbers = Request(source=source), read_numbers(given, bag)
    read = find_model(load(request), request, bag)
    if read is None or numbers is None:
        return None
    part_of_node(numbers, bag)
    values, shape = numbers.values, Shape(read)
    in_blocks(numbers, BLOCK_SIZE, model, shape.streams, bag)
    run = Run(
        ranks=values["ranks"],
        ranks_per_node=values["ranks_per_node"],
        batch=values.get("batch", usual_batch(values["ranks"], values["seq"])),
        seq=values["seq"],
        block_sizes=(values.get("block_size", BLOCK_SIZE),),
    )
    asked = Asked(
        model=_from(model, folder),
        shape=shape,
        run=run,
        machine=Machine(ranks_per_node=run.ranks_per_node, **assumed),
        memory=values["memory"],
        request=request,
    )
    return asked, numbers


def _from(model: str, folder: str) -> str:
    """A card's file as it is named in specs of that folder, which read no files outside of it."""
    path, mark, flavor = model.partition("#")
    if not mark:
        return model
    found = Path(os.path.relpath(path, folder))
    if ".." in found.parts:
        raise click.UsageError(f"specs in {folder} read no files outside of it, and {path} is: -o a folder above it")
    return found.as_posix() + mark + flavor


def _found(asked: Asked, count: int) -> Found:
    from ..suggest.search import MOST_PLANS, search
    from ..suggest.space import cuts
    from .progress import progress

    with progress("candidates", 2 * len(list(cuts(asked.shape, asked.run))) + MOST_PLANS) as tick:
        return search(asked, count, tick)


def _nothing(asked: Asked, found: Found, numbers: Numbers) -> Diagnostic:
    """No candidate fits, or there is none; what the nearest holds, and what was tried."""
    from ..report.tables import bytes_text
    from ..suggest.search import more_ranks

    run = asked.run
    if found.nearest is None:
        if found.refused and not found.counted:
            raise SpecError([found.refused[0][1]])
        what = counted(run.batch, f"sequence of {run.seq} tokens", does=True)
        message = f"{what} not divide over {counted(run.ranks, 'rank')} of `{asked.model}`"
        note = "`batch` divides by the ranks that share it: ranks / (tp x cp x pp)"
        return Diagnostic(code="nothing-fits", message=message, label=Label(span=numbers.spans["ranks"]), notes=(note,))
    held = found.nearest.cost.memory
    mesh = " x ".join(f"{axis} {size}" for axis, size in found.nearest.candidate.mesh.items())
    parts = f"state {bytes_text(held.state)}, weights gathered {bytes_text(held.gathered)}, gradients not yet summed "
    parts += f"{bytes_text(held.unsummed)}, activations {bytes_text(held.activations)}"
    enough = more_ranks(asked)
    more = f"--ranks {enough} is enough: it was planned" if enough else "more ranks up to 64 times as many do not help"
    message = f"no plan of `{asked.model}` on {counted(run.ranks, 'rank')} stays under {bytes_text(asked.room)}"
    return Diagnostic(
        code="nothing-fits",
        message=message,
        label=Label(span=numbers.spans["memory"], text=f"less --reserve {asked.machine.reserve:g} of it"),
        notes=(f"the nearest, {mesh}, holds {bytes_text(held.total)}", parts, more),
    )


def _print(asked: Asked, found: Found, folder: str | None, as_json: bool) -> None:
    from ..suggest.search import finished
    from ..suggest.told import data, notes_of, told

    names = [str(Path(folder or ".") / f"suggested_{number}.toml") for number in range(1, len(found.best) + 1)]
    each = enumerate(zip(found.best, names, strict=True), 1)
    specs = [finished(asked, one, notes_of(asked, one, number), name) for number, (one, name) in each]
    if folder is not None:
        _write(folder, names, specs)
    if as_json:
        click.echo(json.dumps(data(asked, found, specs), indent=1))
        return
    click.echo(told(asked, found, [] if folder is not None else specs), nl=False)
    for name in names if folder is not None else ():
        click.echo(f"wrote {name}")


def _write(folder: str, names: Sequence[str], specs: Sequence[str]) -> None:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, text in zip(names, specs, strict=True):
            path = Path(name)
            if path.exists() and path.read_text(encoding="utf-8", errors="replace") != text:
                raise click.UsageError(f"{name} is there and says something else: choose another folder")
            path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise click.UsageError(f"cannot write {folder}: {error.strerror}") from error
