"""The pipelines that parity is held on, and the specs that ask for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from meshes import CARDS, GATHERED

from meshlang.compiler import Request, compile
from meshlang.plan.ir import Plan
from meshlang.source import Source

HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Pipe:
    """A schedule on a mesh.

    Attributes:
        copies: further data ranks, over which nothing is stored.
        store: whether parameters are stored in parts over dp. after: when they are freed, if said.
        sequence: whether tp also cuts the sequence between modules.
        context: the strategy that runs attention over cp.
        more: further lines of `[pipeline]`.
    """

    schedule: str
    microbatches: int = 4
    pp: int = 2
    copies: int = 1
    dp: int = 1
    cp: int = 1
    tp: int = 1
    store: bool = False
    after: str | None = None
    sequence: bool = False
    context: str | None = None
    accumulation: int = 1
    more: str = ""


#: Each schedule by the name that a spec has for it; "csv" runs a V that turns back on the last rank.
SCHEDULES: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("gpipe", "1f1b", "interleaved_1f1b", "interleaved_zero_bubble", "zbv", "dualpipev")},
    "csv": {"microbatches": 2, "more": 'file = "v.csv"'},
}

#: Ways to use two data ranks (four with copies), and two ranks of each other axis.
DATA: dict[str, dict[str, Any]] = {"ddp": {"dp": 2}, "fsdp": {"dp": 2, "store": True}}
COPIES: dict[str, dict[str, Any]] = {"hsdp": {"copies": 2, "dp": 2, "store": True}}
TENSOR: dict[str, dict[str, Any]] = {"tp": {"tp": 2}, "tp, sequence": {"tp": 2, "sequence": True}}
SEQUENCE: dict[str, dict[str, Any]] = {
    "all-gather": {"cp": 2, "context": "all_gather_attention"},
    "ring": {"cp": 2, "context": "ring_attention"},
    "ulysses": {"cp": 2, "context": "ulysses"},
}


def crossed(schedules: Iterable[str], *ways: dict[str, dict[str, Any]]) -> dict[str, Pipe]:
    """Each schedule with each choice of one of each of the ways; two ranks of the pipeline."""
    found = {}
    for name, *chosen in product(schedules, *ways):
        options = SCHEDULES[name] | {
            key: value for way, words in zip(ways, chosen, strict=True) for key, value in way[words].items()
        }
        found[", ".join((name, *chosen))] = Pipe(schedule=name, **options)
    return found


SINGLE = crossed(SCHEDULES)

#: Each schedule with each other way to use ranks.
PAIRS = crossed(SCHEDULES, {**DATA, **COPIES, **TENSOR, **SEQUENCE})

#: Three axes on eight ranks: all of them under two schedules, one of each three under the others.
_ALL, _ONE = ("1f1b", "dualpipev"), ("gpipe", "interleaved_1f1b", "interleaved_zero_bubble", "zbv", "csv")
TRIPLES = {
    **crossed(_ALL, DATA, TENSOR),
    **crossed(_ALL, DATA, SEQUENCE),
    **crossed(_ALL, SEQUENCE, TENSOR),
    **crossed(_ONE, {"fsdp": DATA["fsdp"]}, {"tp, sequence": TENSOR["tp, sequence"]}),
    **crossed(_ONE, {"fsdp": DATA["fsdp"]}, {"ring": SEQUENCE["ring"]}),
    **crossed(_ONE, {"ulysses": SEQUENCE["ulysses"]}, {"tp, sequence": TENSOR["tp, sequence"]}),
}

DEEP = {
    "gpipe 4, fewer microbatches": Pipe(schedule="gpipe", pp=4, microbatches=2),
    "1f1b 4": Pipe(schedule="1f1b", pp=4),
    "1f1b 4, fsdp, free": Pipe(schedule="1f1b", pp=4, dp=2, store=True, after="free"),
    "1f1b 2, fsdp, tp": Pipe(schedule="1f1b", microbatches=2, dp=2, tp=2, store=True, sequence=True),
    "zbv 2, fsdp, tp": Pipe(schedule="zbv", microbatches=2, dp=2, tp=2, store=True, sequence=True),
    "gpipe, free": Pipe(schedule="gpipe", dp=2, store=True, after="free"),
    "interleaved, free": Pipe(schedule="interleaved_1f1b", dp=2, store=True, after="free"),
    "interleaved, 3 a rank": Pipe(schedule="interleaved_1f1b", dp=2, store=True, more="chunks = 3"),
    "1f1b, two passes": Pipe(schedule="1f1b", microbatches=2, dp=2, store=True, accumulation=2),
    "uneven split": Pipe(
        schedule="interleaved_1f1b", tp=2, sequence=True, more='split = "embed | 2 | 2 + norm | head"'
    ),
    "file": Pipe(schedule="csv", microbatches=2, dp=2, store=True, more='file = "v.csv"'),
    "file, one stage a rank": Pipe(schedule="csv", microbatches=2, dp=2, store=True, more='file = "line.csv"'),
}

#: Of the model with six layers.
LONGER = {
    "interleaved, 4 a rank": Pipe(schedule="interleaved_1f1b", dp=2, store=True, more="chunks = 4"),
    "interleaved, 4 a rank, free": Pipe(schedule="interleaved_1f1b", dp=2, store=True, after="free", more="chunks = 4"),
    "zero bubble, 4 a rank": Pipe(schedule="interleaved_zero_bubble", dp=2, store=True, more="chunks = 4"),
    "zero bubble 4, few microbatches": Pipe(schedule="interleaved_zero_bubble", pp=4, microbatches=2),
    "zbv 4": Pipe(schedule="zbv", pp=4, microbatches=8),
    "dualpipev 4": Pipe(schedule="dualpipev", pp=4, microbatches=8),
}

LLAMA3 = {
    "1f1b, ddp": Pipe(schedule="1f1b", dp=2),
    "dualpipev, fsdp, tp": Pipe(schedule="dualpipev", dp=2, tp=2, store=True, sequence=True),
    "interleaved, fsdp, tp": Pipe(schedule="interleaved_1f1b", dp=2, tp=2, store=True, sequence=True),
}


def plan_of(pipe: Pipe, model: str, dtype: str, **sizes: int) -> Plan:
    """The plan of a pipeline for a model."""
    text = spec(pipe, model, dtype, **sizes)
    return compile(Request(source=Source(name=str(HERE / "spec.toml"), text=text), cards=CARDS))


def spec(pipe: Pipe, model: str, dtype: str, *, batch: int = 8, seq: int = 64) -> str:
    """A pipeline as a spec; its batch is so many sequences a pass, for each copy."""
    mesh = {"pp": pipe.pp, "copies": pipe.copies, "dp": pipe.dp, "cp": pipe.cp, "tp": pipe.tp}
    mesh = {axis: size for axis, size in mesh.items() if size > 1 or axis not in ("copies", "cp")}
    batch *= pipe.accumulation * pipe.copies
    lines = [f'meshlang = 1\nmodel = "{model}"', "[mesh]", *(f"{axis} = {size}" for axis, size in mesh.items())]
    lines += ["[topology]", f"order = {_words(mesh)}"]
    lines += ["[sizes]", f"batch = {batch}", f"seq = {seq}", f"accumulation = {pipe.accumulation}"]
    lines += ["[precision]", *(f'{word} = "{dtype}"' for word in ("state", "compute", "reduce"))]
    lines += ["[place]", f"batch = {_words(axis for axis in ('copies', 'dp') if axis in mesh)}", *_placed(pipe)]
    if pipe.context:
        lines += [f"[strategy.{pipe.context}]", 'axis = "cp"']
    if pipe.store:
        stored = _words(axis for axis in ("dp", "cp") if axis in mesh)
        lines += ["[store]", f"over = {stored}", *([f'after_forward = "{pipe.after}"'] if pipe.after else [])]
    lines += ["[pipeline]", f'schedule = "{pipe.schedule}"', f"microbatches = {pipe.microbatches}", pipe.more]
    return "\n".join(lines) + "\n"


def _placed(pipe: Pipe) -> list[str]:
    """Weights over tp, the sequence over cp and tp."""
    weights = '"tp"' if pipe.tp > 1 else '"whole"'
    lines = [f"{name} = {weights}" for name in ("heads", "kv_heads", "mlp", "vocab")]
    outer = ["cp"] if pipe.context else []
    if outer or pipe.sequence:
        lines.append(f"seq = {_words([*outer, *(['tp'] if pipe.sequence else [])])}")
    if pipe.sequence:
        lines += [f'[within."{GATHERED["llama"]}"]', 'seq = "cp"' if outer else 'seq = "whole"']
    return lines


def _words(names: Iterable[str]) -> str:
    return str(list(names)).replace("'", '"')
