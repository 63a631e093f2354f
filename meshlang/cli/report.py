"""`meshlang report`: one page of all that a plan says, with pictures."""

from __future__ import annotations

from pathlib import Path

import click

from .request import RANKS, SPEC, laid_over, planned, request


@click.command("report", short_help="One page for a browser: mesh, layouts, memory.")
@SPEC
@RANKS
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), default="report.html", show_default=True, help="Write here."
)
@click.option("--svg", "svg_folder", type=click.Path(file_okay=False), help="Also write each picture alone, here.")
@laid_over
def report_command(
    spec: str,
    ranks: int | None,
    output: str,
    svg_folder: str | None,
    sets: tuple[str, ...],
    on: str | None,
    form: str,
) -> None:
    """One page, for a browser without a network: mesh, layouts, collectives, pipeline, memory, who decided."""
    asked = request(spec, ranks=ranks, sets=sets, on=on)
    plan = planned(asked, form)
    from ..compiler import load
    from ..diagnostics import Bag
    from ..language.load import load_document
    from ..report.page.contents import contents
    from ..report.page.page import page

    document = load_document(asked.source, sets=sets, on=on, inside=asked.inside, bag=Bag())
    assert document is not None
    shown = contents(plan, load(asked), document.sources, sets, asked.cards)
    _write(Path(output), page(shown))
    click.echo(f"wrote {output}")
    if svg_folder is not None:
        for picture in shown.pictures():
            _write(Path(svg_folder) / f"{picture.name}.svg", picture.file())
        click.echo(f"wrote {len(list(shown.pictures()))} pictures to {svg_folder}")


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error.strerror}") from error
