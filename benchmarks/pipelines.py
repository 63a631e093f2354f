"""Pipelines on real processes: against the simulator, against torch's runtime, and in orders drawn at random.

    python benchmarks/pipelines.py emulated [--ranks 4 8]  operations sleep for as long as they are modelled to take
    python benchmarks/pipelines.py overhead [--ranks 2]    the same order and model on torch's runtime, in turn
    python benchmarks/pipelines.py random [--runs 20]      random orders and delays, one receive ahead, over gloo

`emulated` prints for each schedule the simulated and the measured makespan, and BSIPipe's gain over
Seq1F1B by both; the goals are 5 % and 1.10. `overhead` prints the median of paired ratios, ours over
torch's; the goal is 1.05. Sleeping ranks need no core of their own: eight fit on a machine of two. What a
rank does besides, some milliseconds an operation, is not modelled: `--seconds` makes operations long
beside it. The machine's load at the end of each row is printed too.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from meshlang.lowering.carry import Now
from meshlang.lowering.execute import Executor, StagePart
from meshlang.lowering.messages import Message, edges
from meshlang.lowering.parts import Feed, ModulePart
from meshlang.lowering.transport import Groups, edge_groups
from meshlang.lowering.watch import Watch
from meshlang.pipeline.costs import Costs
from meshlang.pipeline.ir import Op, Program
from meshlang.pipeline.notation import program_data, program_of, read_program
from meshlang.pipeline.orders import Order, gpipe, interleaved, one_f_one_b
from meshlang.pipeline.sequence_orders import seq1f1b, seq1f1b_interleaved
from meshlang.pipeline.simulate import simulate
from meshlang.pipeline.two_replicas import bitpipe, chimera, dualpipe
from meshlang.pipeline.v_orders import dualpipev, zbv
from meshlang.pipeline.zigzag import bsipipe, seqv
from meshlang.testing.ranks import RankPool

HERE = Path(__file__)

#: Seconds of one sequence's forward on a share of the model.
FORWARD = 0.4


def executor_of(program: Program, parts: dict[tuple[int, int], Any], *, window: int, limit: float) -> Executor:
    """The executor of this rank, all ranks of the world being one pipeline."""
    return executor_over(edge_groups(edges(program), [tuple(range(program.ranks))]), program, parts, window, limit)


def executor_over(
    groups: dict[tuple[int, int], dist.ProcessGroup],
    program: Program,
    parts: dict[tuple[int, int], Any],
    window: int,
    limit: float,
) -> Executor:
    """The same, over groups that are there."""
    rank, ranks = dist.get_rank(), tuple(range(program.ranks))
    transport = Groups(groups=groups, ranks=ranks, rank=rank, limit=timedelta(seconds=limit))
    watch = Watch(rank=rank, ranks=program.ranks, order=program.order[rank])
    return Executor(program=program, rank=rank, parts=parts, transport=transport, watch=watch, window=window)


# Emulated


class Sleeping(StagePart):
    """A stage whose operations take as long as they are told to, and compute a number."""

    def __init__(self, seconds: dict[Op, float]) -> None:
        self.seconds = seconds
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, op: Op, value: torch.Tensor | None) -> torch.Tensor:
        """See StagePart."""
        return (value if value is not None else torch.zeros(())) + self.weight

    def parameters(self) -> Iterable[nn.Parameter]:
        """See StagePart."""
        return [self.weight]

    def buffer(self, message: Message) -> torch.Tensor:
        """See StagePart."""
        return torch.empty(())

    def before(self, op: Op) -> None:
        """See StagePart."""
        time.sleep(self.seconds[op])

    def after(self, op: Op) -> None:
        """See StagePart."""

    def finished(self) -> None:
        """See StagePart."""


def schedules(ranks: int) -> dict[str, Program]:
    """Each schedule at numbers that it takes: two stages a rank where it has several, two subsequences."""
    count = 2 * ranks
    return {
        "gpipe": program_of(gpipe(ranks, count)),
        "1f1b": program_of(one_f_one_b(ranks, count)),
        "interleaved_1f1b": program_of(interleaved(ranks, 2, count)),
        "zbv": program_of(zbv(ranks, count)),
        "dualpipev": program_of(dualpipev(ranks, count)),
        "chimera": chimera(ranks, count),
        "dualpipe": dualpipe(ranks, count),
        "bitpipe": bitpipe(ranks, count),
        "seq1f1b": seq1f1b(ranks, ranks, 2),
        "seq1f1b_interleaved": seq1f1b_interleaved(ranks, 2, ranks, 2),
        "seqv": seqv(ranks, 2, ranks, 2),
        "bsipipe": bsipipe(ranks, 2, ranks, 2),
    }


def durations(program: Program, seconds: float) -> tuple[float, list[dict[Op, float]]]:
    """(makespan, for each rank how long its operations take), as simulated without links."""
    timeline = simulate(program, Costs(forward=seconds, backward=2.0))
    rows = [
        {op: end - start for op, start, end in zip(row, starts, ends, strict=True)}
        for row, starts, ends in zip(program.order, timeline.starts, timeline.ends, strict=True)
    ]
    return timeline.computed, rows


def rank_emulated(data: dict[str, Any], forward: float) -> tuple[float, float]:
    """When this rank began and ended a step."""
    program = read_program(data)
    seconds = durations(program, forward)[1][dist.get_rank()]
    parts = {key: Sleeping(seconds) for key in program.held(dist.get_rank())}
    executor = executor_of(program, parts, window=2, limit=60)
    dist.barrier()
    began = time.time()
    executor.step()
    return began, time.time()


def emulated(ranks: int, seconds: float, only: list[str] | None) -> None:
    """Print the table of simulated and measured makespans."""
    found: dict[str, tuple[float, float]] = {}
    with RankPool(ranks, timeout=120) as pool:
        for name, program in schedules(ranks).items():
            if only and name not in only:
                continue
            spans = pool.run(f"{HERE.stem}:rank_emulated", program_data(program), seconds)
            measured = max(end for _, end in spans) - max(began for began, _ in spans)
            found[name] = durations(program, seconds)[0], measured
            simulated = found[name][0]
            ratio = measured / simulated
            figures = f"simulated {simulated:7.3f} s  measured {measured:7.3f} s  {ratio:6.3f}"
            print(f"{ranks} ranks  {name:20} {figures}  load {os.getloadavg()[0]:.1f}", flush=True)
    worst = max(found, key=lambda name: abs(found[name][1] / found[name][0] - 1))
    away = abs(found[worst][1] / found[worst][0] - 1)
    print(f"{ranks} ranks, farthest from the simulation: {worst}, by {100 * away:.1f} %")
    if {"seq1f1b", "bsipipe"} <= found.keys():
        gains = [found["seq1f1b"][i] / found["bsipipe"][i] for i in (0, 1)]
        print(f"{ranks} ranks, bsipipe over seq1f1b: simulated {gains[0]:.3f}, measured {gains[1]:.3f}", flush=True)


# Overhead


class Block(nn.Module):
    """Two products and a sum, (B, D) as its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x and what is added to it."""
        return x + self.down(torch.relu(self.up(x)))


WIDTH, ROWS = 256, 256


def orders(ranks: int) -> dict[str, Order]:
    """The orders that both run."""
    return {"1f1b": one_f_one_b(ranks, 4 * ranks), "zig-zag": zigzag_order(ranks)}


def zigzag_order(ranks: int) -> Order:
    """SeqV of whole sequences in torch's notation."""
    from meshlang.pipeline.notation import cells_of

    return cells_of(seqv(ranks, 2, 4 * ranks, 1))


def rank_overhead(order: Order, steps: int) -> list[tuple[float, float]]:
    """Seconds of (our, torch's) steps, in turn."""
    ours, torchs = _ours(order), _torchs(order)
    found = []
    for step in range(steps):
        pair = {}
        for name, run in (("ours", ours), ("torch", torchs)) if step % 2 else (("torch", torchs), ("ours", ours)):
            dist.barrier()
            began = time.perf_counter()
            run()
            dist.barrier()
            pair[name] = time.perf_counter() - began
        found.append((pair["ours"], pair["torch"]))
    return found


def _data(count: int) -> list[torch.Tensor]:
    return [torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(index)) for index in range(count)]


def _loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output - target).square().sum()


def _ours(order: Order) -> Any:
    program = program_of(order)
    data = _data(program.sequences)
    feeds = {index: Feed(tokens=each[None], labels=each[None], more={}) for index, each in enumerate(data)}
    parts = {
        (replica, stage): ModulePart(
            module=Block(WIDTH),
            now=Now(),
            feeds=feeds,
            lengths=(ROWS,),
            shape=lambda kind, tokens: (1, tokens, WIDTH),
            dtype=torch.float32,
            device=torch.device("cpu"),
            loss=_loss if stage == program.stages - 1 else None,
        )
        for replica, stage in program.held(dist.get_rank())
    }
    executor = executor_of(program, parts, window=2, limit=60)

    def run() -> None:
        executor.step()
        for part in parts.values():
            part.module.zero_grad()

    return run


def _torchs(order: Order) -> Any:
    import csv
    from tempfile import NamedTemporaryFile

    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    program = program_of(order)
    stages = [
        PipelineStage(Block(WIDTH), stage, program.stages, torch.device("cpu"))
        for _, stage in program.held(dist.get_rank())
    ]
    schedule = _PipelineScheduleRuntime(
        stages,  # pyright: ignore[reportArgumentType]
        n_microbatches=program.sequences,
        loss_fn=_loss,
        scale_grads=False,
    )
    with NamedTemporaryFile("w", suffix=".csv", newline="") as file:
        csv.writer(file).writerows(order)
        file.flush()
        schedule._load_csv(file.name)
    data = _data(program.sequences)
    first, last = any(s.is_first for s in stages), any(s.is_last for s in stages)

    def run() -> None:
        schedule.step(
            arg_mbs=[(each,) for each in data] if first else None,
            target_mbs=data if last else None,
            losses=[] if last else None,
            return_outputs=False,
        )
        for stage in stages:
            stage.submod.zero_grad()

    return run


def overhead(ranks: int, steps: int) -> None:
    """Print the paired ratios."""
    with RankPool(ranks, timeout=300) as pool:
        for name, order in orders(ranks).items():
            reports = pool.run(f"{HERE.stem}:rank_overhead", order, steps + 3)
            pairs = [tuple(max(report[i][k] for report in reports) for k in (0, 1)) for i in range(3, steps + 3)]
            ratio, mine, torchs = (median(x) for x in zip(*((a / b, a, b) for a, b in pairs), strict=True))
            print(f"{name:8} ours {mine * 1e3:7.2f} ms  torch {torchs * 1e3:7.2f} ms  median ratio {ratio:.3f}")


# Random


class Late(Sleeping):
    """A stage that is late at any operation."""

    def __init__(self, seed: str) -> None:
        super().__init__({})
        self.draw = random.Random(seed)

    def before(self, op: Op) -> None:
        """See StagePart."""
        time.sleep(self.draw.choice((0, 0, 0, 0.001, 0.003)))


def rank_random(programs: list[dict[str, Any]]) -> int:
    """How many of the Programs came to their end on this rank, each forward and backward of its stages done once."""
    rank, world = dist.get_rank(), dist.get_world_size()
    groups = edge_groups([(a, b) for a in range(world) for b in range(world) if a != b], [tuple(range(world))])
    ended = 0
    for seed, data in enumerate(programs):
        program = read_program(data)
        if rank < program.ranks:
            parts = {key: Late(f"{seed} {key}") for key in program.held(rank)}
            executor_over(groups, program, parts, window=1, limit=30).step()
            done = sum(float(part.weight.grad) for part in parts.values() if part.weight.grad is not None)
            assert done == sum(op.kind == "B" for op in program.order[rank]), seed
        ended += 1
    return ended


def drawn(runs: int) -> None:
    """Print how many random orders ended."""
    sys.path.insert(0, str(HERE.parents[1] / "tests" / "lowering"))
    from programs import scrambled

    data = [program_data(scrambled(seed)) for seed in range(runs)]
    with RankPool(5, timeout=400) as pool:
        ended = min(pool.run(f"{HERE.stem}:rank_random", data))
    print(f"{ended} of {runs} random orders ended, over gloo, one receive ahead on each edge")


def main() -> None:
    """Read the command and run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("emulated", "overhead", "random"))
    parser.add_argument("--ranks", type=int, nargs="+", help="4 and 8 for `emulated`, 2 for `overhead`")
    parser.add_argument("--seconds", type=float, default=FORWARD, help="of one sequence's forward on a share")
    parser.add_argument("--only", nargs="+", help="these schedules of `emulated`")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--runs", type=int, default=20)
    asked = parser.parse_args()
    if asked.what == "emulated":
        for ranks in asked.ranks or (4, 8):
            emulated(ranks, asked.seconds, asked.only)
    elif asked.what == "overhead":
        for ranks in asked.ranks or (2,):
            overhead(ranks, asked.steps)
    else:
        drawn(asked.runs)


if __name__ == "__main__":
    main()
