"""Losses of a run that goes on under another spec, against the same run never stopped.

Each pair: 12 steps under the first spec; 6 under it, saved by torchtitan, and 6 more under the
second. The same data, learning rates and optimizer states follow from the checkpoint. Printed: the
largest relative difference of a loss, and of the tokens seen; the goal is 1e-6, summation order.

    python benchmarks/resume.py [PAIR ...]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from meshlang.compiler import Request, compile
from meshlang.plan.data import to_data
from meshlang.source import Source
from meshlang.testing.ranks import RankPool
from meshlang.testing.trained import free_port

SPEC = """
meshlang = 1
model = "llama/tiny"
sizes = {{ batch = 16, seq = 64 }}
precision = {{ state = "float32", compute = "float32", reduce = "float32" }}
mesh = {{ {mesh} }}
{store}
[place]
{place}
{more}
[launch]
recipe = "meshlang_models.llama:tiny"
"""

PAIRS = {
    "dp 4 -> tp 2 x dp 2": ({"dp": 4}, {"dp": 2, "tp": 2}),
    "pp 2 -> dp 2": ({"pp": 2}, {"dp": 2}),
    "tp 4 -> pp 2 x cp 2": ({"tp": 4}, {"pp": 2, "cp": 2}),
    "8 ranks -> 4": ({"pp": 2, "dp": 2, "tp": 2}, {"dp": 2, "cp": 2}),
    "4 -> 8 ranks": ({"dp": 2, "cp": 2}, {"pp": 2, "dp": 2, "tp": 2}),
}
STEPS = 12


def spec(mesh: dict[str, int]) -> str:
    """A spec of the tiny model for a mesh of dp, tp, cp and pp; data ranks store in parts."""
    place = dict.fromkeys(("heads", "kv_heads", "mlp", "vocab"), "tp" if "tp" in mesh else "whole")
    place |= {name: axis for name, axis in (("batch", "dp"), ("seq", "cp")) if axis in mesh}
    stored = [axis for axis in ("dp", "cp") if axis in mesh]
    more = []
    if "cp" in mesh:
        more += ["[strategy.ring_attention]", 'axis = "cp"', 'balance = "head_tail"']
    if "pp" in mesh:
        more += ["[pipeline]", 'schedule = "1f1b"', "microbatches = 4", 'split = "embed + 2 | 2 + norm + head"']
    return SPEC.format(
        mesh=", ".join(f"{axis} = {size}" for axis, size in mesh.items()),
        place="\n".join(f'{name} = "{axis}"' for name, axis in place.items()),
        store=f"store = {{ over = {json.dumps(stored)} }}" if stored else "",
        more="\n".join(more),
    )


def plan_data(mesh: dict[str, int]) -> dict[str, Any]:
    """The plan of a mesh, as its JSON document."""
    source = Source(name=" x ".join(f"{axis} {size}" for axis, size in mesh.items()), text=spec(mesh))
    return to_data(compile(Request(source=source, launch=True)))


def train(pool: RankPool, mesh: dict[str, int], folder: Path, stop: int) -> dict[int, tuple[float, int]]:
    """What rank 0 logged."""
    data = plan_data(mesh)
    ranks = 1
    for size in mesh.values():
        ranks *= size
    return pool.run("meshlang.testing.trained:rank_train", data, free_port(), str(folder), stop, STEPS, ranks=ranks)[0]


def differences(pool: RankPool, first: dict[str, int], second: dict[str, int]) -> tuple[int, float, float]:
    """(step resumed at, largest relative difference of a loss, and of the tokens seen)."""
    with tempfile.TemporaryDirectory(prefix="resume-") as name:
        folder = Path(name)
        unbroken = train(pool, first, folder / "unbroken", STEPS)
        begun = train(pool, first, folder / "resumed", STEPS // 2)
        resumed = train(pool, second, folder / "resumed", STEPS)
    whole = begun | resumed
    assert sorted(whole) == list(range(1, STEPS + 1)), sorted(whole)
    pairs = [(whole[step], unbroken[step]) for step in whole]
    loss, tokens = (max(abs(mine[i] - other[i]) / other[i] for mine, other in pairs) for i in (0, 1))
    return min(resumed), loss, tokens


def main() -> None:
    """Print a row a pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="*", metavar="PAIR", help=f"of {'; '.join(PAIRS)}")
    chosen = parser.parse_args().pairs or list(PAIRS)
    print(f"llama/tiny, {STEPS} steps, stopped after {STEPS // 2}")
    print(f"  {'pair':24}{'resumed at':>11}{'loss':>11}{'tokens':>9}{'seconds':>9}")
    with RankPool(8, timeout=240) as pool:
        for name in chosen:
            started = perf_counter()
            step, loss, tokens = differences(pool, *PAIRS[name])
            print(f"  {name:24}{step:11}{loss:11.1e}{tokens:9.0e}{perf_counter() - started:9.0f}", flush=True)


if __name__ == "__main__":
    main()
