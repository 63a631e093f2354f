"""Programs as plain data, and those of one replica to and from torch's notation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .actions import flat
from .ir import Host, Op, Program
from .orders import Order


def program_of(order: Order, subsequences: int = 1) -> Program:
    """The Program that an order in torch's notation is; a microbatch is a sequence, or one of its subsequences.

    Actions that share a cell follow each other.
    """
    rows = tuple(tuple(flat(row)) for row in order)
    places = {action.stage: rank for rank, row in enumerate(rows) for action in row}
    microbatches = 1 + max((action.microbatch for row in rows for action in row), default=-1)
    return Program(
        ranks=len(order),
        stages=1 + max(places, default=-1),
        replicas=1,
        sequences=-(-microbatches // subsequences),
        subsequences=subsequences,
        hosts=tuple(Host(0, stage, places[stage]) for stage in sorted(places)),
        order=tuple(tuple(Op(a.kind, 0, *divmod(a.microbatch, subsequences), a.stage) for a in row) for row in rows),
    )


def cells_of(program: Program) -> Order:
    """The same in torch's notation: subsequences are counted as microbatches.

    Only a Program of one replica has one: torch knows a stage by its number alone.
    """
    assert program.replicas == 1, program.replicas
    parts = program.subsequences
    return tuple(
        tuple(f"{op.stage}{op.kind}{op.sequence * parts + op.subsequence}" for op in row) for row in program.order
    )


def program_data(program: Program) -> dict[str, Any]:
    """A Program as dicts, lists, words and numbers."""
    return {
        "ranks": program.ranks,
        "stages": program.stages,
        "replicas": program.replicas,
        "sequences": program.sequences,
        "subsequences": program.subsequences,
        "hosts": [{"replica": h.replica, "stage": h.stage, "rank": h.rank} for h in program.hosts],
        "order": [[_op_data(op) for op in row] for row in program.order],
    }


def _op_data(op: Op) -> dict[str, Any]:
    return {
        "op": op.kind,
        "replica": op.replica,
        "sequence": op.sequence,
        "subsequence": op.subsequence,
        "stage": op.stage,
    }


def read_program(data: Mapping[str, Any]) -> Program:
    """The Program that `program_data` wrote."""
    return Program(
        **{key: data[key] for key in ("ranks", "stages", "replicas", "sequences", "subsequences")},
        hosts=tuple(Host(**host) for host in data["hosts"]),
        order=tuple(
            tuple(Op(o["op"], o["replica"], o["sequence"], o["subsequence"], o["stage"]) for o in row)
            for row in data["order"]
        ),
    )
