"""BSIPipe beside Seq1F1B, its interleaved form, SeqV and half depth x dp 2, in simulation.

Geometric means of makespans over p in 4, 8, 16, 32, m in p, 2 p and every s from 2 to p / 2 that
divides p / 2, two stages of each replica a rank. Costs: B = 2 F; with attention, 40 % of a forward
is causal attention, whose backward is 2.5 of its forward, and subsequences have equal forwards.
Late: gradients of weights, half of B outside attention, are put off and run where a rank would wait.
A link cost of c takes c of the forward of one sequence on one rank's share for one sequence's states.

    python benchmarks/schedules.py [--every]      --every: all even p from 4 to 32, and all s from 2 to p / 2
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log

from meshlang.pipeline.costs import Costs
from meshlang.pipeline.ir import Program
from meshlang.pipeline.late_weights import late_weights
from meshlang.pipeline.sequence_orders import seq1f1b, seq1f1b_interleaved
from meshlang.pipeline.simulate import Timeline, simulate
from meshlang.pipeline.zigzag import bsipipe, seqv

ATTENTION = Costs(attention=0.4, split="flops")
COSTS = {
    "equal costs": Costs(),
    "attention": ATTENTION,
    "attention, link 3 %": replace(ATTENTION, transfer=0.03),
    "attention, link 15 %": replace(ATTENTION, transfer=0.15),
}


@dataclass(frozen=True)
class Case:
    """Ranks, sequences, subsequences."""

    p: int
    m: int
    s: int


#: Others -> (its Program, copies of it, copies of the parameters that a rank holds).
OTHERS: dict[str, tuple[Callable[[Case], Program], int, int]] = {
    "seq1f1b": (lambda c: seq1f1b(c.p, c.m, c.s), 1, 1),
    "seq1f1b_interleaved, 2 stages": (lambda c: seq1f1b_interleaved(c.p, 2, c.m, c.s), 1, 1),
    "seqv, 2 stages": (lambda c: seqv(c.p, 2, c.m, c.s), 1, 1),
    "half depth x dp 2": (lambda c: seqv(c.p // 2, 4, c.m // 2, c.s), 2, 2),
    "seqv, late": (lambda c: seqv(c.p, 2, c.m, c.s), 1, 1),
    "bsipipe, late": (lambda c: bsipipe(c.p, 2, c.m, c.s), 1, 2),
}


def cases(every: bool) -> Iterator[Case]:
    """The parameter sets."""
    for p in range(4, 33, 2) if every else (4, 8, 16, 32):
        for s in range(2, p // 2 + 1):
            if every or (p // 2) % s == 0:
                yield from (Case(p, m, s) for m in (p, 2 * p))


@cache
def program(name: str, case: Case) -> Program:
    """One schedule at one parameter set."""
    return bsipipe(case.p, 2, case.m, case.s) if name == "bsipipe" else OTHERS[name][0](case)


def timed(name: str, case: Case, costs: Costs) -> Timeline:
    """Its simulation; times are of one of p shares of the model."""
    costs, copies = replace(costs, shares=case.p), 1 if name == "bsipipe" else OTHERS[name][1]
    made = program(name, case)
    return simulate(late_weights(made, costs) if name.endswith("late") else made, costs, copies=copies)


def mean(values: list[float]) -> float:
    """Geometric."""
    return exp(sum(map(log, values)) / len(values))


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", action="store_true")
    sets = list(cases(parser.parse_args().every))
    print(f"{len(sets)} parameter sets; makespan of each over that of bsipipe, geometric mean (least, most)")
    for costs_name, costs in COSTS.items():
        ours = {case: timed("bsipipe", case, costs) for case in sets}
        print(f"\n{costs_name}")
        for other, (_, _, copies) in OTHERS.items():
            theirs = {case: timed(other, case, costs) for case in sets}
            gains = {case: theirs[case].makespan / ours[case].makespan for case in sets}
            full = [gain for case, gain in gains.items() if case.m == 2 * case.p]
            more = [max(ours[case].peaks) / max(theirs[case].peaks) for case in sets]
            print(
                f"  {other:30} {mean(list(gains.values())):.4f} ({min(gains.values()):.3f}, {max(gains.values()):.3f})"
                f"   m = 2 p alone {mean(full):.4f}   our peak / its {mean(more):.3f} (most {max(more):.3f})"
                f"   wins {sum(gain > 1 + 1e-9 for gain in gains.values())} of {len(sets)}, it holds {copies}x"
            )
    print("\npeak in sequences of a share, two stages a rank, m = 2 p, by subsequences")
    for p in (8, 16):
        peaks = [f"{s}: {max(simulate(bsipipe(p, 2, 2 * p, s)).peaks):.3f}" for s in (1, 2, 4, 8, 16, 32, 64)]
        print(f"  p = {p:2}  " + "  ".join(peaks))


if __name__ == "__main__":
    main()
