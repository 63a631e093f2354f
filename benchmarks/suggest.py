"""How long `meshlang suggest` takes as a whole process, and how far its best is behind that of every candidate.

    python benchmarks/suggest.py [--jobs 2] [--case NAME] [--quick]

Exhaustive search: each candidate of the same space is written and compiled to its real plan, and costed if that
fits; none is left out by an estimate. For the two large cases that is thousands of plans: minutes to hours of the
processor. `--quick` holds the time alone. More than `BEHIND` behind, or more seconds of the processor than `GOAL`,
gives exit code 1.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from math import inf

from meshlang.compiler import Request, find_model, load
from meshlang.diagnostics import Bag
from meshlang.plan.cost import memory
from meshlang.source import Source
from meshlang.suggest.asked import usual_batch
from meshlang.suggest.candidate import Candidate
from meshlang.suggest.cost import cost
from meshlang.suggest.machine import Machine
from meshlang.suggest.probe import planned
from meshlang.suggest.search import Asked, estimates, probes, search, written
from meshlang.suggest.shape import Shape
from meshlang.suggest.space import Run

MESHLANG = (sys.executable, "-c", "from meshlang.cli import main; main()")
#: Seconds of the processor for a whole process, on a machine with nothing else to do.
GOAL = 10.0
#: How far the best may be behind that of the exhaustive search.
BEHIND = 0.05
#: Candidates that one process takes at a time.
AT_ONCE = 32
GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model on so many ranks, GiB each."""

    model: str
    ranks: int
    memory: int
    seq: int = 8192
    batch: int | None = None


CASES = {
    "tiny": Case(model="llama/tiny", ranks=8, memory=2, seq=1024, batch=256),
    "blocks": Case(model="block_diffusion/1B", ranks=8, memory=80, batch=64),
    "8B-node": Case(model="llama3/8B", ranks=8, memory=80, batch=16),
    "8B": Case(model="llama3/8B", ranks=64, memory=80),
    "70B": Case(model="llama3/70B", ranks=512, memory=80),
}


def asked(case: Case) -> Asked:
    """As the command asks."""
    source = Source(name="--model", text=f'meshlang = 1\nmodel = "{case.model}"\n[mesh]\ndp = 1\n')
    request = Request(source=source)
    model = find_model(load(request), request, Bag())
    assert model is not None
    node = min(8, case.ranks)
    batch = case.batch or usual_batch(case.ranks, case.seq)
    run = Run(ranks=case.ranks, ranks_per_node=node, batch=batch, seq=case.seq)
    machine = Machine(ranks_per_node=node)
    return Asked(
        model=case.model, shape=Shape(model), run=run, machine=machine, memory=case.memory * GIB, request=request
    )


def costed(case: Case, some: list[Candidate]) -> list[tuple[float, Candidate]]:
    """Seconds of plans, infinite of those that hold more than a rank has room for."""
    search_ = asked(case)
    return [(_seconds(search_, each), each) for each in some]


def _seconds(search_: Asked, candidate: Candidate) -> float:
    plan = planned(written(search_, candidate), search_.shape, search_.request)
    assert plan.state_bytes is not None
    fits = plan.state_bytes.total <= search_.room and memory(plan).total <= search_.room
    return cost(plan, search_.machine).seconds if fits else inf


def exhaustive(case: Case, jobs: int) -> tuple[int, float, Candidate]:
    """(candidates, seconds of the best that fits, the best): every plan is made."""
    search_ = asked(case)
    every = [each.candidate for each in estimates(search_, probes(search_, lambda: None)[0], lambda: None)]
    parts = list(_parts(every))
    best: tuple[float, Candidate] | None = None
    with ProcessPoolExecutor(jobs) as pool:
        for done, rows in enumerate(pool.map(costed, [case] * len(parts), parts), 1):
            best = min([*rows, *([best] if best is not None else [])])
            if sys.stderr.isatty():
                print(f"\r  {done * AT_ONCE} of {len(every)}", end="", file=sys.stderr)
    assert best is not None
    assert best[0] < inf, "nothing fits"
    return len(every), best[0], best[1]


def _parts(every: list[Candidate]) -> Iterator[list[Candidate]]:
    items = iter(every)
    while part := list(islice(items, AT_ONCE)):
        yield part


def timed(case: Case) -> tuple[float, float]:
    """(seconds by the clock, of the processor) of the command."""
    words = ["suggest", case.model, "--ranks", str(case.ranks), "--memory", f"{case.memory}GiB", "--seq", str(case.seq)]
    words += ["--batch", str(case.batch)] if case.batch else []
    start, before = time.perf_counter(), _spent()
    subprocess.run([*MESHLANG, *words], check=True, stdout=subprocess.PIPE)
    return time.perf_counter() - start, _spent() - before


def _spent() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Print the tables; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--case", choices=list(CASES), action="append")
    parser.add_argument("--quick", action="store_true", help="the time of the command alone")
    given = parser.parse_args()
    missed = False
    for name in given.case or list(CASES):
        case = CASES[name]
        by_clock, cpu = timed(case)
        print(f"{name}: {case.model} on {case.ranks}: {by_clock:.2f} s by the clock, {cpu:.2f} s of the processor")
        missed |= cpu > GOAL
        if not given.quick:
            ours = search(asked(case), 1).best[0].cost.seconds
            count, best, chosen = exhaustive(case, given.jobs)
            behind = ours / best - 1
            print(
                f"  best of {count} plans {best:.6g} s, proposed {ours:.6g} s: {behind:.3%} behind; {chosen}",
                flush=True,
            )
            missed |= behind > BEHIND
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
