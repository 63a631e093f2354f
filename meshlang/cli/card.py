"""`meshlang card`: a first card for a model, and a card held against its model. Loads torch inside."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ..card.find import Cards
from ..card.read import flavors
from ..diagnostics import Bag
from ..source import Source
from .progress import progress
from .request import FORMAT, show


@click.group("card", short_help="A first card for a model; a card held against one.")
def card_group() -> None:
    """Model cards: the dimension names of every tensor of an architecture."""


@card_group.command("init")
@click.argument("target")
@click.option("--name", help="The card's model name; default: the last part of TARGET's module.")
@click.option("--flavor", default="default", show_default=True, help="Name of the flavor that its sizes make.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write here, a new file; default: print.")
def card_init_command(target: str, name: str | None, flavor: str, output: str | None) -> None:
    """A first card for any nn.Module, each guess marked for review.

    TARGET is package.module:factory, a function that returns an nn.Module or a torchtitan recipe.
    """
    called = name or target.partition(":")[0].rpartition(".")[2]
    with progress("card", 3, "torch") as tick:
        from ..runtime.cards import TargetError, init_card

        tick("the model")
        module = _built(target, flavor)
        tick("its card")
        try:
            text = init_card(module, called, flavor)
        except TargetError as error:
            raise click.UsageError(f"{target}: {error}") from error
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        with Path(output).open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise click.UsageError(f"cannot write {output}: {error.strerror}") from error
    click.echo(f"wrote {output}; review each line marked `guess`")


@card_group.command("check")
@click.argument("card")
@click.argument("target")
@FORMAT
def card_check_command(card: str, target: str, form: str) -> None:
    """Hold a card against the model that it describes.

    CARD is NAME/FLAVOR of an installed card or FILE#FLAVOR, TARGET package.module:factory.
    """
    source, flavor = _card(card)
    with progress("card", 3, "torch") as tick:
        from ..runtime.cards import check_card

        tick("the model")
        module = _built(target, flavor)
        tick("their differences")
        found = check_card(source, flavor, module)
    if found or form == "json":
        show(found, form)
    sys.exit(1 if found else 0)


def _card(name: str) -> tuple[Source, str]:
    head, mark, flavor = name.partition("#" if "#" in name else "/")
    path = Path(head) if mark == "#" else Cards().path(head)
    if mark != "#" and Path(name).is_file():
        head, path, mark, flavor = name, Path(name), "#", ""
    if path is None:
        raise click.UsageError(f"{name}: no such card; NAME/FLAVOR of {', '.join(Cards().names())}, or FILE#FLAVOR")
    try:
        source = Source.read(path)
    except OSError as error:
        raise click.UsageError(f"cannot read {path}: {error.strerror}") from error
    if not flavor:
        known = ", ".join(f"{head}{mark or '/'}{each}" for each in flavors(source, Bag()))
        raise click.UsageError(f"{name}: which flavor of the card? {known or 'it has none'}")
    return source, flavor


def _built(target: str, flavor: str) -> Any:
    from ..runtime.cards import TargetError, build_module

    try:
        return build_module(target, flavor)
    except TargetError as error:
        raise click.UsageError(str(error)) from error
