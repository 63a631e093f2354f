"""A candidate as the text of a spec, in the order and spacing of `meshlang fmt`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from .candidate import Candidate
from .shape import Shape

Tables = dict[str, dict[str, object]]


def spec_text(
    candidate: Candidate,
    shape: Shape,
    *,
    model: str,
    batch: int,
    seq: int,
    ranks_per_node: int,
    split: str | None = None,
    memory: str | None = None,
    notes: Sequence[str] = (),
) -> str:
    """The spec of a candidate.

    Args:
        split: the pipeline's, where it is to be said.
        memory: what `[expect]` promises of each rank.
        notes: lines of the comment at the top.
    """
    each = candidate
    inner = each.passes if each.pp == 1 else 1
    sizes = {"batch": batch, "seq": seq, **({"accumulation": inner} if inner > 1 else {})}
    tables: Tables = {
        "": {"meshlang": 1, "model": model},
        "mesh": dict(each.mesh),
        "sizes": dict(sizes),
        "precision": {"state": "float32", "compute": "bfloat16", "reduce": "float32"},
        "topology": _topology(each, ranks_per_node),
        "place": _place(each, shape),
        **_within(each, shape),
        "store": _store(each),
        "recompute": {"modules": [shape.layer]} if each.recompute else {},
        "pipeline": _pipeline(each, split),
        **_strategy(each),
        "expect": {"memory_per_rank": memory} if memory else {},
    }
    head = [f"# {note}".rstrip() for note in notes]
    return "\n".join([*head, _text(tables)]) if head else _text(tables)


def _topology(each: Candidate, ranks_per_node: int) -> dict[str, object]:
    found: dict[str, object] = {}
    if each.copies > 1:
        found["order"] = list(each.mesh)
    found["ranks_per_node"] = ranks_per_node
    if each.cut.tp > 1:
        found["inside_node"] = ["tp"]
    return found


def _place(each: Candidate, shape: Shape) -> dict[str, object]:
    found: dict[str, object] = {}
    data = [axis for axis in ("copies", "dp") if axis in each.mesh]
    if data:
        found["batch"] = data if len(data) > 1 else data[0]
    if each.cut.cp > 1 or each.cut.sequence:
        axes = _sequence(each)
        if axes:
            found["seq"] = axes if len(axes) > 1 else axes[0]
    found.update(dict.fromkeys(shape.cut, "tp" if each.cut.tp > 1 else "whole"))
    found.update(dict.fromkeys(shape.whole, "whole"))
    return found


def _sequence(each: Candidate) -> list[str]:
    """Axes that `[place]` cuts the sequence over; csbp says its own, unless another lies inside it."""
    own = each.cut.exchange == "csbp" and not each.cut.sequence
    outer = [each.cut.axis] if each.cut.axis in each.mesh and not own else []
    return [*outer, *(["tp"] if each.cut.sequence else [])]


def _within(each: Candidate, shape: Shape) -> Tables:
    """Modules whose weights `tp` cuts in other names have the sequence whole over it."""
    if not each.cut.sequence:
        return {}
    names = shape.gathered
    pattern = names[0] if len(names) == 1 else f"{{{','.join(names)}}}"
    return {f"within.{json.dumps(pattern)}": {"seq": each.cut.axis if each.cut.axis in each.mesh else "whole"}}


def _store(each: Candidate) -> dict[str, object]:
    over = [axis for axis in ("dp", each.cut.axis) if each.mesh.get(axis, 1) > 1]
    if each.store == "none" or not over:
        return {}
    return {"over": over, **({"after_forward": "keep"} if each.store == "keep" and each.pp == 1 else {})}


def _pipeline(each: Candidate, split: str | None) -> dict[str, object]:
    if each.pp == 1:
        return {}
    found: dict[str, object] = {"schedule": each.schedule, "microbatches": each.passes}
    if each.subsequences > 1:
        found["subsequences"] = each.subsequences
    if each.chunks > 1:
        found["chunks"] = each.chunks
    if split is not None:
        found["split"] = split
    return found


def _strategy(each: Candidate) -> Tables:
    if not each.cut.exchange:
        return {}
    fields: dict[str, object] = {"axis": each.cut.axis}
    if each.cut.exchange == "csbp":
        fields["block_size"] = each.cut.block_size
        if each.cut.context < each.cut.cp:
            fields["context"] = each.cut.context
    return {f"strategy.{each.cut.exchange}": fields}


def _text(tables: Tables) -> str:
    return "\n".join("".join(_rows(name, table)) for name, table in tables.items() if table)


def _rows(header: str, table: Mapping[str, object]) -> list[str]:
    """A table; JSON's strings, whole numbers and arrays are TOML's too."""
    head = [f"[{header}]\n"] if header else []
    return [*head, *(f"{key} = {json.dumps(value)}\n" for key, value in table.items())]
