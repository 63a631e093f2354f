"""BSIPipe's closed form, for every even p up to --ranks, v up to 4, s up to 16, even m up to 2 p.

Each parameter set is held against the formulas at slot level, with whole arrays: no rank has two
forwards or two backwards in one slot, all that an operation needs stands in an earlier slot (so no
order of waiting can close a circle), each message is taken in the slot after the one that made it
(so each pair of ranks is a queue), and peak and makespan are those of the formulas. Up to
--programs ranks the Program itself is made too, and held against the checker.

    python benchmarks/closed_forms.py [--ranks 32] [--from 2] [--programs 8] [--chunks 1 2 3 4]
                                       [--subsequences 1 2 ... 16]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from meshlang.pipeline.laws import program_problems
from meshlang.pipeline.live import peak_counts
from meshlang.pipeline.simulate import simulate
from meshlang.pipeline.zigzag import bsipipe, lead, makespan_is_exact, rank_of, turn

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Slots:
    """Every operation of a replica's stage (first index) and subsequence (second), for replica 0 and 1 (third)."""

    forward: Ints
    backward: Ints
    rank: Ints
    peak: int
    start: int


def slots(p: int, v: int, m: int, s: int) -> Slots:
    """The closed form as arrays: forward and backward slots (stages, subsequences of the step, replicas)."""
    stages, unit, count = v * p, p // 2, m // 2 * s
    start = lead(ranks=p, chunks=v, subsequences=s, unit=unit, sequences=m // 2)
    x = np.arange(count)
    y = x // s * s + s - 1 - x % s
    first = v * p * (x // unit) + 2 * (x % unit)
    stage = np.arange(stages)[:, None]
    forward = first[None, :] + stage
    backward = start + first[y][None, :] + (stages - 1 - stage)
    rank = np.array([[rank_of(k, p, r) for r in (0, 1)] for k in range(stages)])
    assert forward[3 % stages, count - 1] == turn(3 % stages, count - 1, ranks=p, chunks=v, unit=unit)
    full = [np.broadcast_to(each[:, :, None], (stages, count, 2)) for each in (forward, backward)]
    return Slots(
        forward=full[0],
        backward=full[1],
        rank=np.broadcast_to(rank[:, None, :], (stages, count, 2)),
        peak=_peak(full[0], full[1], np.broadcast_to(rank[:, None, :], (stages, count, 2)), p),
        start=start,
    )


def _peak(forward: Ints, backward: Ints, rank: Ints, p: int) -> int:
    """The most forwards without their backward, over all ranks; in one slot the backward is first."""
    width = int(backward.max()) + 1
    more = np.bincount((rank * width + forward).ravel(), minlength=p * width).reshape(p, width)
    less = np.bincount((rank * width + backward).ravel(), minlength=p * width).reshape(p, width)
    assert more.max() == 1, "two forwards of one rank in a slot"
    assert less.max() == 1, "two backwards of one rank in a slot"
    return int((more - less).cumsum(axis=1).max())


def needs_are_earlier(at: Slots, s: int) -> bool:
    """All that an operation needs stands in an earlier slot; what comes from another stage, in the one before."""
    hop = (np.diff(at.forward, axis=0) == 1).all() and (np.diff(at.backward, axis=0) == -1).all()
    own = (at.backward > at.forward).all()
    count = at.forward.shape[1]
    inside = np.arange(1, count) % s != 0
    keys = (np.diff(at.forward, axis=1)[:, inside] > 0).all()
    gradients = (np.diff(at.backward, axis=1)[:, inside] < 0).all()
    return bool(hop and own and keys and gradients)


def makespan(at: Slots, p: int, s: int, forward: int, backward: int) -> int:
    """Ranks take their operations by slot, each as soon as it can; times of one operation in whole numbers."""
    stages, count, _ = at.forward.shape
    last = int(at.backward.max()) + 1
    tables = [np.full((last, p), -1), np.full((last, p), -1)]
    ids = np.arange(stages * count * 2).reshape(stages, count, 2)
    for table, slot in zip(tables, (at.backward, at.forward), strict=True):
        table[slot.ravel(), at.rank.ravel()] = ids.ravel()
    done = [np.zeros(ids.size + 1, dtype=np.int64), np.zeros(ids.size + 1, dtype=np.int64)]
    needs = [_needs(ids, backward=True), _needs(ids, backward=False)]
    clock = np.zeros(p, dtype=np.int64)
    for slot in range(last):
        for table, ends, need, cost in zip(tables, done, needs, (backward, forward), strict=True):
            here = table[slot]
            busy = np.flatnonzero(here >= 0)
            if busy.size:
                ops = here[busy]
                clock[busy] = np.maximum(clock[busy], ends[need[ops]]) + cost
                ends[ops] = clock[busy]
    return int(clock.max())


def _needs(ids: Ints, *, backward: bool) -> Ints:
    """For each operation the one of the neighbouring stage that it waits for; the last number is none."""
    need = np.full(ids.shape, ids.size)
    if backward:
        need[:-1] = ids[1:]
    else:
        need[1:] = ids[:-1]
    return need.ravel()


def held(p: int, v: int, m: int, s: int, counts: Counter[str]) -> None:
    """One parameter set, against everything; counts what was exact."""
    at = slots(p, v, m, s)
    assert needs_are_earlier(at, s), (p, v, m, s)
    counts["sets"] += 1
    assert at.peak <= at.start, (p, v, m, s, at.peak, at.start)
    counts["peak is the formula's"] += at.peak == at.start
    unit = p // 2
    if unit % s == 0 or s % unit == 0:
        formula = v * p + 2 * s - 2 if s <= unit else 2 * v * s + p - 2
        counts["s divides p/2 or is a multiple"] += 1
        assert at.start <= formula, (p, v, m, s, at.start, formula)
        counts["lead is the formula's"] += at.start == formula
    for f, b in ((1, 1), (1, 2), (2, 3)) if p <= 12 else ((1, 2),):
        found, wanted = makespan(at, p, s, f, b), m * v * s * (f + b) + (p - 2) * max(f, b)
        if makespan_is_exact(p, m, s):
            assert found == wanted, (p, v, m, s, f, b, found, wanted)
            counts["makespans exact"] += 1
        else:
            over = -(-(found - wanted) // (f + b))
            counts["makespans elsewhere"] += 1
            counts["most slots over"] = max(counts["most slots over"], over)
            assert over <= v * p, (p, v, m, s, f, b, found, wanted)


def programs(p: int, v: int, m: int, s: int, counts: Counter[str]) -> None:
    """The Program is complete, ends, and has the peak of the slots."""
    program = bsipipe(p, v, m, s)
    assert not program_problems(program), (p, v, m, s)
    at = slots(p, v, m, s)
    assert max(peak_counts(program)) == at.peak
    assert round(simulate(program).makespan * v * s) == makespan(at, p, s, 1, 2)
    counts["programs checked"] += 1


def main() -> None:
    """The sweep; prints its counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=32)
    parser.add_argument("--from", type=int, default=2, dest="first")
    parser.add_argument("--programs", type=int, default=8)
    parser.add_argument("--chunks", type=int, nargs="*", default=(1, 2, 3, 4))
    parser.add_argument("--subsequences", type=int, nargs="*", default=range(1, 17))
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    began = time.time()
    for p in range(asked.first, asked.ranks + 1, 2):
        for v, s, m in product(asked.chunks, asked.subsequences, range(2, 2 * p + 1, 2)):
            held(p, v, m, s, counts)
            if p <= asked.programs:
                programs(p, v, m, s, counts)
        print(f"p = {p}: {dict(counts)}, {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
