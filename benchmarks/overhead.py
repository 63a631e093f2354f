"""Step time of a lowered model against torchtitan's own parallelization of it.

Both models live in the same processes and take turns, a step each, so that the machine's moods
touch both alike. Printed: the median of the paired ratios, plan over torchtitan; the goal is 1.02.

    python benchmarks/overhead.py [--steps 40] [--ranks 4]
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import Any

from meshlang.compiler import Request, compile
from meshlang.plan.data import from_data, to_data
from meshlang.plan.ir import Plan
from meshlang.source import Source
from meshlang.testing.ranks import RankPool

SPEC = """
meshlang = 1
model = "llama3/debugmodel"
include = [{presets}]
mesh = {{ dp = "rest", tp = {tp} }}
sizes = {{ batch = 8, seq = 256 }}
precision = {{ state = "float32", compute = "float32", reduce = "float32" }}
"""

CASES = {
    "dp x tp, FSDP": (("fsdp", "tensor_parallel"), 2),
    "dp x tp, FSDP, sequence parallel": (("fsdp", "tensor_parallel", "sequence_parallel"), 2),
    "dp, FSDP": (("fsdp", "whole_weights"), 1),
}
RECIPE = "meshlang_models.llama3:debugmodel"


def plan_for(presets: tuple[str, ...], tp: int, ranks: int) -> Plan:
    """The plan of one case."""
    text = SPEC.format(presets=", ".join(f'"preset:{name}"' for name in presets), tp=tp)
    return compile(Request(source=Source(name="overhead.toml", text=text), ranks=ranks))


def rank_overhead(data: dict[str, Any], steps: int, warm: int) -> list[tuple[float, float]]:
    """Seconds of (planned, stock) steps, in turn, on this rank."""
    import torch
    import torch.distributed as dist

    from meshlang.testing import titan
    from meshlang.testing.parity import make_batch, share

    plan = from_data(data)
    config = titan.laid_out(titan.config_of(RECIPE, plan), plan)
    parallel_dims = titan.parallel_dims_of(config, plan)
    runs = []
    for each in (config, stock(config)):
        model = titan.build(each, plan, parallel_dims)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
        runs.append((each, model, optimizer))
    batch = make_batch(plan, titan.vocabulary(config))
    mine, tokens = share(batch, plan, dist.get_rank()), batch.labels.numel()
    pairs = []
    for step in range(warm + steps):
        times = {}
        for index in (0, 1) if step % 2 else (1, 0):
            each, model, optimizer = runs[index]
            dist.barrier()
            started = perf_counter()
            titan.forward_backward(each, model, mine, tokens, parallel_dims)
            optimizer.step()
            optimizer.zero_grad()
            dist.barrier()
            times[index] = perf_counter() - started
        pairs.append((times[0], times[1]))
    return pairs[warm:]


def stock(config: Any) -> Any:
    """The same run, parallelized by torchtitan itself."""
    from torchtitan.models.llama3 import model_registry, parallelize_llama

    from meshlang.runtime.attention import swap_inner_attention
    from meshlang.runtime.device import SumReduction

    spec = replace(model_registry("debugmodel"), parallelize_fn=SumReduction(inner=parallelize_llama))
    swap_inner_attention(spec.model)
    return replace(config, model_spec=spec)


def main() -> None:
    """Print a row a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warm", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=4)
    options = parser.parse_args()
    print(f"llama3 debugmodel, {options.ranks} ranks, {options.steps} paired steps after {options.warm}")
    print(f"  {'case':34}{'planned s':>11}{'stock s':>10}{'ratio':>8}{'quartiles':>17}")
    with RankPool(options.ranks, timeout=900) as pool:
        for name, (presets, tp) in CASES.items():
            plan = plan_for(presets, tp, options.ranks)
            pairs = pool.run("overhead:rank_overhead", to_data(plan), options.steps, options.warm)[0]
            ratios = sorted(mine / other for mine, other in pairs)
            quarter = len(ratios) // 4
            mine, other = (median(pair[i] for pair in pairs) for i in (0, 1))
            spread = f"{ratios[quarter]:.3f} - {ratios[-1 - quarter]:.3f}"
            print(f"  {name:34}{mine:11.3f}{other:10.3f}{median(ratios):8.3f}{spread:>17}", flush=True)


if __name__ == "__main__":
    main()
