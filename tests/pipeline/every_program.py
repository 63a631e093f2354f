"""Programs of every schedule, for tests: by name and numbers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from meshlang.pipeline import orders, v_orders
from meshlang.pipeline.ir import Program
from meshlang.pipeline.notation import program_of
from meshlang.pipeline.sequence_orders import seq1f1b, seq1f1b_interleaved
from meshlang.pipeline.two_replicas import bitpipe, chimera, dualpipe
from meshlang.pipeline.zigzag import bsipipe, seqv

#: (ranks, chunks, sequences, subsequences) -> the Program; numbers are rounded to what the schedule takes.
PROGRAMS: dict[str, Callable[[int, int, int, int], Program]] = {
    "1f1b": lambda p, v, m, s: program_of(orders.one_f_one_b(p, max(m, p))),
    "bitpipe": lambda p, v, m, s: bitpipe(2 * p, 2 * p * (1 + m // (2 * p))),
    "bsipipe": lambda p, v, m, s: bsipipe(2 * p, v, 2 * m, s),
    "chimera": lambda p, v, m, s: chimera(2 * p, m),
    "dualpipe": lambda p, v, m, s: dualpipe(2 * p, 2 * (2 * p + m)),
    "dualpipev": lambda p, v, m, s: program_of(v_orders.dualpipev(p, 2 * p + m)),
    "gpipe": lambda p, v, m, s: program_of(orders.gpipe(p, m)),
    "interleaved_1f1b": lambda p, v, m, s: program_of(orders.interleaved(p, v, p * m)),
    "interleaved_zero_bubble": lambda p, v, m, s: program_of(orders.interleaved_zero_bubble(p, v, p * m)),
    "seq1f1b": lambda p, v, m, s: seq1f1b(p, m, s),
    "seq1f1b_interleaved": lambda p, v, m, s: seq1f1b_interleaved(p, v, m, s),
    "seqv": lambda p, v, m, s: seqv(p, 2 * v, m, s),
    "zbv": lambda p, v, m, s: program_of(v_orders.zbv(p, m)),
}


def some(seed: int, *, names: tuple[str, ...] = tuple(PROGRAMS), least: int = 1) -> tuple[str, Program]:
    """A schedule drawn by the seed, and its Program of numbers drawn by it."""
    random = Random(seed)
    name = random.choice(names)
    numbers = [random.randint(low, 4) for low in (1 if least == 1 else 2, 1, least, least)]
    return name, PROGRAMS[name](*numbers)
