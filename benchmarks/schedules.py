"""BSIPipe beside Seq1F1B, its interleaved form, SeqV and half depth x dp 2, in simulation.

Geometric means of makespans over p in 4, 8, 16, 32, m in p, 2 p and every s from 2 to p / 2 that
divides p / 2, two stages of each replica a rank. Costs: B = 2 F; with attention, 40 % of the forward of
a whole sequence is causal attention, whose backward is 2.5 of its forward (2 where it says so), and
subsequences have equal forwards. A link of c takes, from stage to stage on another rank, c of the
forward of one sequence on one rank's share for the states of one sequence, and for those of a
subsequence its part by tokens; messages of a pair of ranks follow each other, beside the computing.
Late: gradients of weights, half of B outside attention, are put off and run where a rank would wait;
held: the same, and no rank above what Seq1F1B holds. Fitted: the fastest of held and uneven that holds no more
than Seq1F1B, with two stages of each replica a rank, or with two, three or four.

    python benchmarks/schedules.py             the means, for each kind of costs
    python benchmarks/schedules.py --every     all even p from 4 to 32 and all s from 2 to p / 2, a row for each p
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log

from meshlang.pipeline.costs import Costs
from meshlang.pipeline.held import filled, late
from meshlang.pipeline.ir import Program
from meshlang.pipeline.sequence_orders import seq1f1b, seq1f1b_interleaved
from meshlang.pipeline.simulate import Timeline, simulate
from meshlang.pipeline.zigzag import bsipipe, can_be_uneven, seqv, uneven_bsipipe

ATTENTION = Costs(attention=0.4, split="flops")
COSTS = {
    "equal costs": Costs(),
    "attention": ATTENTION,
    "attention, link 3 %": replace(ATTENTION, transfer=0.03),
    "attention, link 15 %": replace(ATTENTION, transfer=0.15),
    "attention, its backward 2, link 3 %": replace(ATTENTION, attention_backward=2.0, transfer=0.03),
}


@dataclass(frozen=True)
class Case:
    """Ranks, sequences, subsequences."""

    p: int
    m: int
    s: int


#: Schedule -> (its Program, copies of it, copies of the parameters that a rank holds).
SCHEDULES: dict[str, tuple[Callable[[Case, Costs], Program], int, int]] = {
    "seq1f1b": (lambda c, _: seq1f1b(c.p, c.m, c.s), 1, 1),
    "seq1f1b_interleaved": (lambda c, _: seq1f1b_interleaved(c.p, 2, c.m, c.s), 1, 1),
    "seqv": (lambda c, _: seqv(c.p, 2, c.m, c.s), 1, 1),
    "seqv, late": (lambda c, costs: late(c.p, 2, c.m, c.s, replicas=1, costs=costs), 1, 1),
    "seqv, held": (lambda c, costs: late(c.p, 2, c.m, c.s, replicas=1, hold=True, costs=costs), 1, 1),
    "bsipipe": (lambda c, _: bsipipe(c.p, 2, c.m, c.s), 1, 2),
    "bsipipe, late": (lambda c, costs: late(c.p, 2, c.m, c.s, replicas=2, costs=costs), 1, 2),
    "bsipipe, held": (lambda c, costs: late(c.p, 2, c.m, c.s, replicas=2, hold=True, costs=costs), 1, 2),
    "half depth x dp 2": (lambda c, _: seqv(c.p // 2, 4, c.m // 2, c.s), 2, 2),
    "half depth x dp 2, late": (lambda c, costs: late(c.p // 2, 4, c.m // 2, c.s, replicas=1, costs=costs), 2, 2),
    "half depth x dp 2, held": (
        lambda c, costs: late(c.p // 2, 4, c.m // 2, c.s, replicas=1, hold=True, costs=costs),
        2,
        2,
    ),
}


#: What the table of every parameter set shows.
TABLE = ("seq1f1b_interleaved", "bsipipe", "bsipipe, late", "half depth x dp 2", "half depth x dp 2, late")
#: Of so many stages of each replica a rank.
FITTED = {"bsipipe, fitted": (2,), "bsipipe, fitted, 2 to 4 stages": (2, 3, 4)}


def cases(every: bool) -> Iterator[Case]:
    """The parameter sets."""
    for p in range(4, 33, 2) if every else (4, 8, 16, 32):
        for s in range(2, p // 2 + 1):
            if every or (p // 2) % s == 0:
                yield from (Case(p, m, s) for m in (p, 2 * p))


@cache
def timed(name: str, case: Case, costs: Costs) -> tuple[float, float]:
    """(makespan, peak of the fullest rank); times and peaks are of one of p shares of the model."""
    make, copies, _ = SCHEDULES[name]
    costs = replace(costs, shares=case.p)
    found = simulate(make(case, costs), costs, copies=copies)
    return found.makespan, max(found.peaks)


def mean(values: list[float]) -> float:
    """Geometric."""
    return exp(sum(map(log, values)) / len(values))


def means(sets: list[Case], costs: Costs) -> None:
    """Each schedule's makespan over BSIPipe's, and BSIPipe's peak over its."""
    ours = {case: timed("bsipipe", case, costs) for case in sets}
    for other, (_, _, copies) in SCHEDULES.items():
        theirs = {case: timed(other, case, costs) for case in sets}
        gains = {case: theirs[case][0] / ours[case][0] for case in sets}
        full = [gain for case, gain in gains.items() if case.m == 2 * case.p]
        more = [ours[case][1] / theirs[case][1] for case in sets]
        print(
            f"  {other:30} {mean(list(gains.values())):.4f} ({min(gains.values()):.3f}, {max(gains.values()):.3f})"
            f"   m = 2 p alone {mean(full):.4f}   our peak / its {mean(more):.3f} (most {max(more):.3f})"
            f"   wins {sum(gain > 1 + 1e-9 for gain in gains.values())} of {len(sets)}, it holds {copies}x"
        )


def fitted(case: Case, costs: Costs, chunks: tuple[int, ...]) -> tuple[float, float]:
    """The fastest of BSIPipe's orders whose peak is not above Seq1F1B's."""
    costs = replace(costs, shares=case.p)
    times: list[Timeline] = []
    for v in chunks:
        at = (case.p, v, case.m, case.s)
        times.append(simulate(late(*at, replicas=2, hold=True, costs=costs), costs))
        if can_be_uneven(case.p, v, case.s):
            times += [simulate(each, costs) for each in (uneven_bsipipe(*at), filled(uneven_bsipipe(*at), costs))]
    most = timed("seq1f1b", case, costs)[1] + 1e-9
    return min((each.makespan, max(each.peaks)) for each in times if max(each.peaks) <= most)


def table(sets: list[Case], costs: Costs) -> None:
    """For each p how many times as fast as Seq1F1B each schedule is, and its peak over Seq1F1B's (the most of it)."""
    print("| p | " + " | ".join((*TABLE, *FITTED)) + " |\n|" + "---|" * (len(TABLE) + len(FITTED) + 1))
    every: list[list[tuple[float, float]]] = [[] for _ in (*TABLE, *FITTED)]
    for p in sorted({case.p for case in sets}):
        here = [case for case in sets if case.p == p]
        base = [timed("seq1f1b", case, costs) for case in here]
        columns = [[timed(name, case, costs) for case in here] for name in TABLE]
        columns += [[fitted(case, costs, chunks) for case in here] for chunks in FITTED.values()]
        ratios = [[(b[0] / f[0], f[1] / b[1]) for b, f in zip(base, each, strict=True)] for each in columns]
        for total, each in zip(every, ratios, strict=True):
            total += each
        print(f"| {p} | " + " | ".join(map(cell, ratios)) + " |", flush=True)
    print("| all | " + " | ".join(map(cell, every)) + " |", flush=True)


def cell(ratios: list[tuple[float, float]]) -> str:
    """Means of both, and the most of the peak's."""
    gains, peaks = [a for a, _ in ratios], [b for _, b in ratios]
    return f"{mean(gains):.3f}, {mean(peaks):.2f} ({max(peaks):.2f})"


def flat() -> None:
    """Peaks by subsequences."""
    print("\npeak in sequences of a share, two stages a rank, m = 2 p, by subsequences; bsipipe, and late")
    for p in (8, 16):
        for make in ("bsipipe", "bsipipe, late"):
            peaks = [f"{s}: {timed(make, Case(p, 2 * p, s), Costs())[1]:.3f}" for s in (1, 2, 3, 4, 6, 8, 11, 16, 32)]
            print(f"  p = {p:2}  {make:14} " + "  ".join(peaks))


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--costs", nargs="*", choices=COSTS, default=("equal costs", "attention, link 3 %"))
    asked = parser.parse_args()
    sets = list(cases(asked.every))
    if asked.every:
        for costs_name in asked.costs:
            print(f"\n{costs_name}; {len(sets)} sets: times as fast as seq1f1b, peak over its (most)")
            table(sets, COSTS[costs_name])
        return
    print(f"{len(sets)} parameter sets; makespan of each over that of bsipipe, geometric mean (least, most)")
    for costs_name, costs in COSTS.items():
        print(f"\n{costs_name}")
        means(sets, costs)
    flat()


if __name__ == "__main__":
    main()
