"""`meshlang mesh`: where ranks lie, and who talks to whom."""

from __future__ import annotations

import click

from ..compiler import load
from .request import RANKS, SPEC, laid_over, planned, request


@click.command("mesh")
@SPEC
@RANKS
@click.option("--rank", type=int, help="Show one rank only.")
@laid_over
def mesh_command(
    spec: str, ranks: int | None, rank: int | None, sets: tuple[str, ...], on: str | None, form: str
) -> None:
    """Where each rank lies on the mesh, and who talks to whom."""
    from ..report.mesh import mesh_text

    asked = request(spec, ranks=ranks, sets=sets, on=on)
    plan = planned(asked, form, rank)
    per_node = load(asked).topology.ranks_per_node
    node = per_node.value if per_node is not None else None
    click.echo(mesh_text(plan, rank=rank, ranks_per_node=node), nl=False)
