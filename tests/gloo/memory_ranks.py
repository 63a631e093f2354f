"""What one rank's values take in a training step, measured."""

from __future__ import annotations

import torch.distributed as dist

from meshlang.plan.ir import Plan
from meshlang.testing import pipeline, titan
from meshlang.testing.memory import live_values
from meshlang.testing.parity import make_batch, precision, share


def rank_peak(recipe: str, plan: Plan, data: bool = False) -> int:
    """The most bytes of values that forwards make at one time, here; of random tokens, or the recipe's `data`."""
    with precision(plan):
        config = titan.laid_out(titan.config_of(recipe, plan), plan)
        parallel_dims = titan.parallel_dims_of(config, plan)
        batch = titan.own_batch(config, plan) if data else make_batch(plan, titan.vocabulary(config))
        mine = share(batch, plan, dist.get_rank())
        tokens = titan.counted(batch)
        if not plan.stages:
            model = titan.build(config, plan, parallel_dims)
            with live_values([model]) as live:
                titan.forward_backward(config, model, mine, tokens, parallel_dims)
            return live.peak
        schedule, parts = pipeline.build(config, parallel_dims)
        pipeline.step(config, schedule, parts, mine, tokens, parallel_dims)
        with live_values(parts) as live:
            for stage in pipeline.stages_of(schedule):
                for infos in (*stage.args_recv_info.values(), *stage.grad_recv_info.values()):
                    for info in infos:
                        if getattr(info, "buffer", None) is not None:
                            live.add(info.buffer.untyped_storage())
            pipeline.step(config, schedule, parts, mine, tokens, parallel_dims)
        return live.peak
