"""Proposals as text and as data: what each takes and holds, what was assumed, and the specs themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from ..report.tables import bytes_text, table
from .candidate import Candidate
from .machine import Machine
from .search import Asked, Found, Proposal

#: Parts of a step's time -> the head of their column.
PARTS = {
    "computing": "computing",
    "again": "recomputing",
    "boundary": "tp",
    "exchange": "sequence",
    "weights": "weights, gradients",
    "bubble": "bubble",
    "optimizer": "optimizer",
}


def told(asked: Asked, found: Found, specs: Sequence[str]) -> str:
    """The tables, the assumptions, and each spec where it is not written to a file."""
    blocks = [_head(asked, found), _proposals(found), _times(found), _held(found), _moved(found), _assumed(asked)]
    blocks += [[f"# ---- {number} ----", *text.rstrip().split("\n")] for number, text in enumerate(specs, 1)]
    return "\n\n".join("\n".join(lines) for lines in blocks) + "\n"


def _head(asked: Asked, found: Found) -> list[str]:
    run = asked.run
    lines = [
        f"{asked.model} on {run.ranks} ranks of {bytes_text(asked.memory)}, nodes of {run.ranks_per_node}",
        f"  a step: {run.batch} sequences of {run.seq} tokens",
        f"  {found.counted} candidates estimated, {found.planned} planned; of each mesh the best, fastest first",
    ]
    if found.refused:
        cut, why = found.refused[0]
        first = " x ".join(f"{axis} {size}" for axis, size in Candidate(cut=cut).mesh.items())
        lines.append(f"  {len(found.refused)} cuts of layers are refused, as {first}: {why.message}")
    return lines


def _proposals(found: Found) -> list[str]:
    rows = [_row(number, each) for number, each in enumerate(found.best, 1)]
    header = ["", "mesh", "a step", "of peak", "memory", "bubble", "state at rest", "passes", "recompute", "sequence"]
    return ["predicted, not measured", *table(header, rows, right=frozenset({0, 2, 3, 4, 5}))]


def _row(number: int, each: Proposal) -> list[str]:
    chosen, cost = each.candidate, each.cost
    return [
        str(number),
        " x ".join(f"{axis} {size}" for axis, size in chosen.mesh.items()),
        time_text(cost.seconds),
        f"{cost.useful:.1%}",
        bytes_text(cost.memory.total),
        f"{cost.bubble:.1%}" if chosen.pp > 1 else "-",
        stored_text(chosen),
        passes_text(chosen),
        "layers" if chosen.recompute else "-",
        sequence_text(chosen),
    ]


def stored_text(each: Candidate) -> str:
    """Which axes cut parameters, gradients and moments at rest."""
    over = [axis for axis in ("dp", each.cut.axis) if each.mesh.get(axis, 1) > 1] if each.store != "none" else []
    if not over:
        return "whole"
    return "over " + " and ".join(over) + (", kept" if each.store == "keep" and each.pp == 1 else "")


def passes_text(each: Candidate) -> str:
    """How a rank's sequences go through."""
    if each.pp == 1:
        return str(each.passes)
    chunks = f" of {each.chunks}" if each.chunks > 1 else ""
    parts = f" x {each.subsequences}" if each.subsequences > 1 else ""
    return f"{each.schedule}{chunks}, {each.passes}{parts}"


def sequence_text(each: Candidate) -> str:
    """Who cuts a sequence."""
    found = [each.cut.exchange] if each.cut.exchange and (each.cut.cp > 1 or each.cut.block_size) else []
    if each.cut.block_size:
        found[-1] += f", blocks of {each.cut.block_size}"
        found += [f"rings of {each.cut.context}"] if each.cut.context < each.cut.cp else []
    return ", ".join([*found, *(["tp"] if each.cut.sequence else [])]) or "-"


def _times(found: Found) -> list[str]:
    names = [name for name in PARTS if any(each.cost.parts[name] > 0 for each in found.best)]
    rows = [
        [str(i), *(time_text(each.cost.parts[name]) for name in names), time_text(each.cost.seconds)]
        for i, each in enumerate(found.best, 1)
    ]
    header = ["", *(PARTS[name] for name in names), "total"]
    return ["where the time goes, of the rank that computes longest", *table(header, rows, right=_all(header))]


def _held(found: Found) -> list[str]:
    rows = []
    for number, each in enumerate(found.best, 1):
        held = each.cost.memory
        sizes = held.state, held.gathered, held.unsummed, held.activations, held.total
        rows.append([str(number), *map(bytes_text, sizes)])
    rough = any(each.cost.memory.rough for each in found.best)
    says = "activations (rough: the card does not say what modules save)" if rough else "activations (estimate)"
    header = ["", "state", "weights gathered", "gradients not yet summed", says, "total"]
    return ["what the fullest rank holds at once", *table(header, rows, right=_all(header))]


def _moved(found: Found) -> list[str]:
    axes = list(dict.fromkeys(axis for each in found.best for axis in each.cost.moved))
    rows = [
        [str(i), *(bytes_text(each.cost.moved[axis]) if axis in each.cost.moved else "-" for axis in axes)]
        for i, each in enumerate(found.best, 1)
    ]
    header = ["", *axes]
    return ["bytes of a rank's calls over each axis, a step", *table(header, rows, right=_all(header))]


def _all(header: Sequence[str]) -> frozenset[int]:
    return frozenset(range(len(header)))


def _assumed(asked: Asked) -> list[str]:
    lines = ["assumed; an option changes each"]
    rows = [
        [f"--{name.replace('_', '-')} {value:g}", unit, says] for name, value, unit, says in assumptions(asked.machine)
    ]
    lines += table(["option", "", ""], rows)[1:]
    return [
        *lines,
        f"  --batch {asked.run.batch}, --seq {asked.run.seq}, --ranks-per-node {asked.run.ranks_per_node}",
        "  parameters and moments in float32, computing in bfloat16, AdamW; a causal mask over whole sequences",
    ]


def assumptions(machine: Machine) -> list[tuple[str, float, str, str]]:
    """Name, value, unit and what it says of each."""
    return [
        (each.name, getattr(machine, each.name), each.metadata["unit"], each.metadata["says"])
        for each in fields(machine)
        if each.metadata
    ]


def time_text(seconds: float) -> str:
    """`0.0123` -> "12.3 ms"."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us" if seconds else "0"


def notes_of(asked: Asked, each: Proposal, number: int) -> list[str]:
    """The comment at the top of a spec."""
    cost = each.cost
    return [
        f"Number {number} of `meshlang suggest`: {asked.model}, {asked.run.ranks} ranks of {bytes_text(asked.memory)}.",
        f"Predicted, not measured: {time_text(cost.seconds)} a step, {cost.useful:.1%} of the peak, "
        f"{bytes_text(cost.memory.total)} a rank.",
    ]


def data(asked: Asked, found: Found, specs: Sequence[str]) -> dict[str, Any]:
    """The same as plain data: seconds and bytes."""
    run = asked.run
    return {
        "model": asked.model,
        "ranks": run.ranks,
        "ranks_per_node": run.ranks_per_node,
        "memory": asked.memory,
        "batch": run.batch,
        "seq": run.seq,
        "assumed": {name: value for name, value, _, _ in assumptions(asked.machine)},
        "candidates": found.counted,
        "planned": found.planned,
        "proposals": [_data(each, text) for each, text in zip(found.best, specs, strict=True)],
    }


def _data(each: Proposal, text: str) -> dict[str, Any]:
    cost, held = each.cost, each.cost.memory
    return {
        "mesh": each.candidate.mesh,
        "seconds": cost.seconds,
        "parts": dict(cost.parts),
        "of_peak": cost.useful,
        "bubble": cost.bubble,
        "memory": {
            "state": held.state,
            "gathered": held.gathered,
            "unsummed": held.unsummed,
            "activations": held.activations,
            "total": held.total,
            "rough": held.rough,
        },
        "bytes": dict(cost.moved),
        "spec": text,
    }
