"""What the ranks of `benchmarks/csbp.py` run: training steps under several plans, taking turns."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from meshlang.plan.ir import Plan
from meshlang.testing import parity, titan
from meshlang.testing.collectives import count_collectives, plan_groups


class LiveBytes(TorchDispatchMode):
    """The most bytes at once of tensors made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and count what it made."""
        made = func(*args, **(kwargs or {}))
        self._alive = {key: pair for key, pair in self._alive.items() if not pair[0].expired()}
        for tensor in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self._alive.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        self.peak = max(self.peak, sum(size for _, size in self._alive.values()))
        return made


def rank_steps(recipe: str, plans: dict[str, Plan], rounds: int) -> dict[str, dict[str, Any]]:
    """For each plan: seconds of each round, loss, issued collectives, peak of live bytes."""
    first = next(iter(plans.values()))  # all plans have one mesh, and FSDP wants one object for it
    dims = titan.parallel_dims_of(titan.laid_out(titan.config_of(recipe, first), first), first)
    runs = {name: _Run(recipe, plan, dims) for name, plan in plans.items()}
    for run in runs.values():
        run.step()  # what is made once
    for _ in range(rounds):
        for run in runs.values():
            run.timed()
    return {name: run.report() for name, run in runs.items()}


class _Run:
    """A model under one plan."""

    def __init__(self, recipe: str, plan: Plan, dims: Any) -> None:
        rank = dist.get_rank()
        self.config = titan.laid_out(titan.config_of(recipe, plan), plan)
        self.dims = dims
        self.model = titan.build(self.config, plan, self.dims)
        self.plan, self.seconds = plan, list[float]()
        batch = titan.own_batch(self.config, plan)
        self.tokens, self.batch = titan.counted(batch), parity.share(batch, plan, rank)
        self.model.get_attention_masks = lambda positions: None  # the strategy's rows take their place

    def step(self) -> float:
        """One forward and backward; this rank's share of the loss."""
        self.model.zero_grad()
        return float(titan.forward_backward(self.config, self.model, self.batch, self.tokens, self.dims).detach())

    def timed(self) -> None:
        """One step from one barrier to the next."""
        dist.barrier()
        start = time.perf_counter()
        self.step()
        dist.barrier()
        self.seconds.append(time.perf_counter() - start)

    def report(self) -> dict[str, Any]:
        """What was found, with one more step that counts."""
        groups = plan_groups(self.plan, dist.get_rank())
        with count_collectives(groups) as issued, LiveBytes() as live:
            loss = self.step()
        total = torch.tensor(loss, dtype=torch.float64)
        dist.all_reduce(total)
        return {"seconds": self.seconds, "loss": float(total), "counts": issued.counts(), "peak": live.peak}
