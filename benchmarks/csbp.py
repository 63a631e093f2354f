"""Block diffusion over an axis: what each algorithm sends, computes and takes, beside context parallelism.

    python benchmarks/csbp.py                      bytes, rows and pairs of P = 1, 2, 4, 8, from plans
    python benchmarks/csbp.py --measure 1 2        and steps on so many processes of this machine
    python benchmarks/csbp.py --measure 2 --lengths 4096 --only "CSBP gather" "CSBP + share_clean"
    python benchmarks/csbp.py --predict            and a cost model of 8 to 512 GPUs

A measured step is one forward and backward of a small model, float32, on the processes of a CPU
machine. Algorithms take turns, round by round; a ratio is the median over rounds of two
neighbouring times, so that what slows the machine slows both.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from meshlang.compiler import Request, compile
from meshlang.plan.blocks import imbalance
from meshlang.plan.ir import Plan
from meshlang.report.tables import bytes_text, table
from meshlang.source import Source

sys.path.insert(0, str(Path(__file__).parent))

#: Name -> strategy, further keys. All train on two complementary views of each sample.
ALGORITHMS: dict[str, tuple[str, str]] = {
    "CP": ("combined_context", ""),
    "BP": ("csbp", "context = 1"),
    "CSBP gather": ("csbp", ""),
    "CSBP ring": ("csbp", 'transport = "ring"'),
    "CSBP + share_clean": ("csbp", "share_clean = true"),
    "CSBP + share_clean + prune_last": ("csbp", "share_clean = true\nprune_last = true"),
}

#: What the others are set against.
BASE = "CSBP gather"

RANKS = (1, 2, 4, 8)
LENGTHS = (4096, 16384, 65536)
RECIPE = "meshlang_models.block_diffusion.config_registry:tiny_complementary"


def plan_of(name: str, ranks: int, seq: int, flavor: str = "tiny_complementary", block_size: int = 16) -> Plan:
    """The plan of an algorithm over so many ranks."""
    strategy, more = ALGORITHMS[name]
    text = f"""
        meshlang = 1
        model = "block_diffusion/{flavor}"
        include = ["preset:whole_weights"]
        [mesh]
        block = {ranks}
        [sizes]
        batch = 1
        seq = {seq}
        [precision]
        state = "float32"
        compute = "float32"
        reduce = "float32"
        [strategy.{strategy}]
        axis = "block"
        block_size = {block_size}
        {more}
    """
    return compile(Request(source=Source(name="csbp.toml", text=text)))


def planned(lengths: Sequence[int]) -> list[str]:
    """Bytes a rank receives in attention, rows and pairs, of every algorithm, size and length."""
    rows = []
    for seq in lengths:
        for ranks in RANKS:
            for name in ALGORITHMS:
                block = plan_of(name, ranks, seq).block
                assert block is not None
                rows.append(
                    [
                        str(seq),
                        str(ranks),
                        name,
                        bytes_text(block.forward),
                        bytes_text(block.backward),
                        str(max(block.rows)),
                        f"{max(block.pairs):,}",
                        f"{imbalance(block.rows):.1%}",
                        f"{imbalance(block.pairs):.1%}",
                    ]
                )
    header = ["tokens", "P", "algorithm", "forward", "backward", "rows", "pairs", "rows over mean", "pairs over mean"]
    return table(header, rows, right=frozenset({0, 1, 3, 4, 5, 6, 7, 8}))


def measured(ranks: Sequence[int], lengths: Sequence[int], rounds: int, names: Sequence[str]) -> list[str]:
    """Steps on processes of this machine: time against CSBP gather, in turns, and the peak of live bytes."""
    from meshlang.testing.ranks import RankPool

    rows = []
    with RankPool(max(ranks), timeout=1200) as pool:
        for size in ranks:
            for seq in lengths:
                plans = {name: plan_of(name, size, seq) for name in names}
                found = pool.run("csbp_ranks:rank_steps", RECIPE, plans, rounds, ranks=size)
                rows += [_measured_row(name, plans[name], size, seq, found) for name in names]
    header = ["tokens", "P", "algorithm", "seconds", "CSBP gather / this", "peak", "sent as planned", "loss"]
    return table(header, rows, right=frozenset({0, 1, 3, 4, 5}))


def _measured_row(name: str, plan: Plan, size: int, seq: int, found: list[dict[str, Any]]) -> list[str]:
    from meshlang.testing.parity import differences

    mine, base = found[0][name], found[0][BASE]
    ratio = median(b / a for a, b in zip(mine["seconds"], base["seconds"], strict=True))
    peak = max(each[name]["peak"] for each in found)
    return [
        str(seq),
        str(size),
        name,
        f"{median(mine['seconds']):.3f}",
        f"{ratio:.2f}",
        bytes_text(peak),
        "yes" if not differences(plan, mine["counts"]) else "NO",
        f"{mine['loss']:.6f}",
    ]


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", type=int, nargs="*", default=[], metavar="P", help="processes to run on")
    parser.add_argument("--lengths", type=int, nargs="*", default=[1024, 2048], help="tokens of measured sequences")
    parser.add_argument("--only", nargs="*", default=[*ALGORITHMS], choices=ALGORITHMS, help="algorithms to measure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--predict", action="store_true", help="the cost model")
    given = parser.parse_args()
    print("received in attention by a rank, a layer and pass; rows and pairs of the fullest rank, one sequence")
    print("\n".join(planned(LENGTHS)))
    if given.measure:
        print("\nsteps on this machine: medians; ratios of neighbouring times")
        print("\n".join(measured(given.measure, given.lengths, given.rounds, list(dict.fromkeys([BASE, *given.only])))))
    if given.predict:
        from csbp_model import predictions

        print("\n" + "\n".join(predictions()))


if __name__ == "__main__":
    main()
