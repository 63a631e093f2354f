"""The meshes that context parallelism is held on, and one step of torchtitan's model on packed documents."""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from meshes import CARDS

from meshlang.compiler import Request, compile
from meshlang.plan.ir import Plan
from meshlang.source import Source
from meshlang.testing import titan
from meshlang.testing.collectives import axis_groups, count_collectives
from meshlang.testing.parity import Batch, Report, compare, gradients_of, make_batch, precision, share

HERE = Path(__file__).parent

#: Modules in which the sequence is gathered over tp under sequence parallelism.
GATHERED = "{tok_embeddings,lm_head,layers.*.{attention,feed_forward}}"

#: Where documents of a packed sequence begin, as shares of the sequence; sequences take turns.
STARTS = ((0.0,), (0.0, 0.3, 0.34, 0.8), (0.0, 0.5), (0.0, 0.11))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mesh, outermost axis first, and what runs over its axis `cp`.

    Attributes:
        store: axes over which parameters are stored in parts.
        sequence: whether tp also cuts the sequence between modules.
    """

    strategy: str
    mesh: dict[str, int]
    balance: str | None = "head_tail"
    store: tuple[str, ...] = ("cp",)
    sequence: bool = False
    seq: int = 64
    batch: int = 4


def plan_of(case: Case, model: str, dtype: str) -> Plan:
    """The plan of a case."""
    source = Source(name=str(HERE / "spec.toml"), text=spec(case, model, dtype))
    return compile(Request(source=source, cards=CARDS, launch=True))


def spec(case: Case, model: str, dtype: str) -> str:
    """The case as a spec."""
    tp = '"tp"' if "tp" in case.mesh else '"whole"'
    lines = [f'meshlang = 1\nmodel = "{model}"', "[mesh]", *(f"{axis} = {size}" for axis, size in case.mesh.items())]
    lines += ["[topology]", f"order = {list(case.mesh)}".replace("'", '"')]
    lines += ["[sizes]", f"batch = {case.batch}", f"seq = {case.seq}"]
    lines += ["[precision]", *(f'{word} = "{dtype}"' for word in ("state", "compute", "reduce"))]
    lines += ["[place]", *(f"{name} = {tp}" for name in ("heads", "kv_heads", "mlp", "vocab"))]
    data = [axis for axis in ("copies", "dp") if axis in case.mesh]
    lines += [f"batch = {data}".replace("'", '"')] if data else []
    lines += ['seq = ["cp", "tp"]' if case.sequence else 'seq = "cp"']
    if case.sequence:
        lines += [f'[within."{GATHERED}"]', 'seq = "cp"']
    if case.store:
        lines += ["[store]", f"over = {list(case.store)}".replace("'", '"')]
    lines += [f"[strategy.{case.strategy}]", 'axis = "cp"']
    lines += [f'balance = "{case.balance}"'] if case.balance is not None else []
    return "\n".join(lines) + "\n"


def packed(plan: Plan, vocabulary: int) -> Batch:
    """The batch of one step, with several documents in some of its sequences."""
    batch = make_batch(plan, vocabulary)
    count, length = batch.tokens.shape
    positions = torch.empty_like(batch.positions)
    for row in range(count):
        starts = [int(part * length) for part in STARTS[row % len(STARTS)]]
        for start, end in zip(starts, [*starts[1:], length], strict=True):
            positions[row, start:end] = torch.arange(end - start)
    return Batch(tokens=batch.tokens, positions=positions, labels=batch.labels)


def rank_reference(recipe: str, plan: Plan, path: str) -> None:
    """Loss and gradients of the whole batch on one rank, without any parallelism, into a file."""
    with precision(plan):
        config = titan.config_of(recipe, plan)
        model = titan.build(config, plan)
        batch = packed(plan, titan.vocabulary(config))
        loss = titan.forward_backward(config, model, batch, batch.labels.numel())
    torch.save({"loss": loss.detach(), "gradients": gradients_of(model)}, path)


def rank_step(recipe: str, plan: Plan, path: str, typecheck: bool = False) -> Report:
    """One step under the plan, against the reference in a file."""
    rank = dist.get_rank()
    with precision(plan):
        config = titan.laid_out(titan.config_of(recipe, plan), plan)
        parallel_dims = titan.parallel_dims_of(config, plan)
        model = titan.build(config, plan, parallel_dims)
        batch = packed(plan, titan.vocabulary(config))
        mine = share(batch, plan, rank)
        with count_collectives(axis_groups(plan.mesh, rank)) as issued:
            loss = titan.forward_backward(config, model, mine, batch.labels.numel(), parallel_dims, typecheck=typecheck)
        misplaced = tuple(titan.misplaced(model, plan, rank))
    return compare(plan, model, loss, path, misplaced, issued.counts())
