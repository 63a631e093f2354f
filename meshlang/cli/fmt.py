"""`meshlang fmt`: specs in one order and with one spacing."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..diagnostics import Bag, Diagnostic
from ..excerpt import cut
from ..language.load import a_card
from ..language.toml import scan
from ..source import MOST_BYTES, Source
from .request import FORMAT, show


@click.command("fmt", short_help="Put each SPEC into the language's order and spacing.")
@click.argument("specs", nargs=-1, required=True, type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--check", "only_check", is_flag=True, help="Write nothing; name files that would change, and exit 1.")
@click.option("--diff", "as_diff", is_flag=True, help="Write nothing; show what would change, and exit 1.")
@FORMAT
def fmt_command(specs: tuple[str, ...], only_check: bool, as_diff: bool, form: str) -> None:
    """Put each SPEC into the language's order and spacing; `-` is stdin to stdout.

    Comments and meaning stay. A file that is no TOML is left as it is, and its findings are printed.
    """
    found: list[Diagnostic] = []
    changed = 0
    for name in specs:
        bag = Bag()
        source = _read(name)
        text = _formatted(source, bag)
        found += bag
        if text is None:
            continue
        if name == "-" and not only_check and not as_diff:
            click.echo(text, nl=False)
        elif text != source.text:
            changed += 1
            _tell(source, text, only_check, as_diff)
    if found:
        show(found, form)
    sys.exit(1 if found or (changed and (only_check or as_diff)) else 0)


def _read(name: str) -> Source:
    try:
        return Source.decode("-", sys.stdin.buffer.read(MOST_BYTES + 1)) if name == "-" else Source.read(name)
    except OSError as error:
        raise click.UsageError(f"cannot read {cut(name)}: {error.strerror}") from error


def _formatted(source: Source, bag: Bag) -> str | None:
    """The text in order, or None with findings where there is no spec; what it means is held to be the same."""
    root = scan(source, bag)
    if root is None:
        return None
    if "card" in root.value and "meshlang" not in root.value:
        bag.add(a_card(root.value["card"]))
        return None
    from ..format import formatted, meaning

    text = formatted(source.text)
    after = Source(name=source.name, text=text)
    assert meaning(after) == meaning(source), f"{source.name}: its meaning would change"
    return text


def _tell(source: Source, text: str, only_check: bool, as_diff: bool) -> None:
    """Write the file, or say what would be written."""
    if as_diff:
        from difflib import unified_diff

        lines = source.text.splitlines(True), text.splitlines(True)
        click.echo("".join(unified_diff(*lines, source.name, "formatted")), nl=False)
    elif only_check:
        click.echo(f"would format {source.name}")
    else:
        try:
            Path(source.name).write_text(text, encoding="utf-8", newline="\n")
        except OSError as error:
            raise click.UsageError(f"cannot write {source.name}: {error.strerror}") from error
        click.echo(f"formatted {source.name}")
