"""The pipelines that parity is held on, and the specs that ask for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from meshes import CARDS, GATHERED

from meshlang.compiler import Request, compile
from meshlang.plan.ir import Plan
from meshlang.source import Source

HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Pipe:
    """A schedule on a mesh.

    Attributes:
        store: whether parameters are stored in parts over dp. after: when they are freed, if said.
        sequence: whether tp also cuts the sequence between modules.
        context: the strategy that runs attention over cp.
        more: further lines of `[pipeline]`.
    """

    schedule: str
    microbatches: int = 4
    pp: int = 2
    dp: int = 1
    cp: int = 1
    tp: int = 1
    store: bool = False
    after: str | None = None
    sequence: bool = False
    context: str | None = None
    accumulation: int = 1
    more: str = ""


SCHEDULES = ("gpipe", "1f1b", "interleaved_1f1b", "interleaved_zero_bubble", "zbv", "dualpipev")

SINGLE = {name: Pipe(schedule=name) for name in SCHEDULES}

#: Each schedule with each other way to use ranks; two ranks of the pipeline.
PAIRS = {
    f"{name}, {words}": Pipe(schedule=name, **options)  # pyright: ignore[reportArgumentType]
    for name in SCHEDULES
    for words, options in {
        "ddp": {"dp": 2},
        "fsdp": {"dp": 2, "store": True},
        "tp": {"tp": 2},
        "tp, sequence": {"tp": 2, "sequence": True},
    }.items()
}

DEEP = {
    "gpipe 4, fewer microbatches": Pipe(schedule="gpipe", pp=4, microbatches=2),
    "1f1b 4": Pipe(schedule="1f1b", pp=4),
    "1f1b 4, fsdp, free": Pipe(schedule="1f1b", pp=4, dp=2, store=True, after="free"),
    "1f1b, fsdp, tp": Pipe(schedule="1f1b", microbatches=2, dp=2, tp=2, store=True, sequence=True),
    "zbv, fsdp, tp": Pipe(schedule="zbv", microbatches=2, dp=2, tp=2, store=True, sequence=True),
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

CONTEXT = {
    "1f1b, ring": Pipe(schedule="1f1b", cp=2, context="ring_attention"),
    "1f1b, all-gather": Pipe(schedule="1f1b", cp=2, context="all_gather_attention"),
    "interleaved, ulysses": Pipe(schedule="interleaved_1f1b", cp=2, context="ulysses"),
    "dualpipev, ring, tp": Pipe(schedule="dualpipev", cp=2, tp=2, context="ring_attention"),
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


def plan_of(pipe: Pipe, model: str, dtype: str) -> Plan:
    """The plan of a pipeline for a model."""
    return compile(Request(source=Source(name=str(HERE / "spec.toml"), text=spec(pipe, model, dtype)), cards=CARDS))


def spec(pipe: Pipe, model: str, dtype: str) -> str:
    """A pipeline as a spec; its batch is eight sequences a pass."""
    weights = '"tp"' if pipe.tp > 1 else '"whole"'
    lines = [f'meshlang = 1\nmodel = "{model}"', "[mesh]", f"pp = {pipe.pp}", f"dp = {pipe.dp}"]
    lines += [f"cp = {pipe.cp}"] * (pipe.cp > 1) + [f"tp = {pipe.tp}"]
    lines += ["[sizes]", f"batch = {8 * pipe.accumulation}", "seq = 64", f"accumulation = {pipe.accumulation}"]
    lines += ["[precision]", *(f'{word} = "{dtype}"' for word in ("state", "compute", "reduce"))]
    lines += ["[place]", 'batch = "dp"', *(f"{name} = {weights}" for name in ("heads", "kv_heads", "mlp", "vocab"))]
    if pipe.sequence:
        lines += ['seq = "tp"', f'[within."{GATHERED["llama"]}"]', 'seq = "whole"']
    if pipe.context:
        lines += ['seq = "cp"', f"[strategy.{pipe.context}]", 'axis = "cp"']
    if pipe.store:
        lines += ["[store]", 'over = ["dp"]', *([f'after_forward = "{pipe.after}"'] if pipe.after else [])]
    lines += ["[pipeline]", f'schedule = "{pipe.schedule}"', f"microbatches = {pipe.microbatches}", pipe.more]
    return "\n".join(lines) + "\n"
