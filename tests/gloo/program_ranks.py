"""What ranks run of a Program whose order cannot go on."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.distributed_c10d import _get_default_store

from meshlang.lowering.carry import Now
from meshlang.lowering.execute import Executor, StuckError
from meshlang.lowering.messages import edges
from meshlang.lowering.parts import Feed, ModulePart
from meshlang.lowering.transport import Groups, edge_groups
from meshlang.lowering.watch import Watch
from meshlang.pipeline.sequence_orders import seq1f1b


def report() -> tuple[str, float]:
    """(what the error says, seconds until then): rank 0 wants a gradient before it sends what that needs."""
    program = seq1f1b(2, 2, 1)
    forward, later, *backwards = program.order[0]
    program = replace(program, order=((forward, *backwards, later), program.order[1]))
    rank = dist.get_rank()
    feeds = {index: Feed(tokens=torch.ones(1, 4, 2), labels=torch.ones(1, 4, 2), more={}) for index in range(2)}
    part = ModulePart(
        module=torch.nn.Linear(2, 2),
        now=Now(),
        feeds=feeds,
        lengths=(4,),
        shape=lambda kind, tokens: (1, tokens, 2),
        dtype=torch.float32,
        device=torch.device("cpu"),
        loss=lambda output, labels: (output - labels).sum(),
    )
    if rank == 0:
        part.loss = None
    groups = edge_groups(edges(program), [(0, 1)])
    transport = Groups(groups=groups, ranks=(0, 1), rank=rank, limit=timedelta(seconds=2))
    board = PrefixStore("stuck", _get_default_store())
    watch = Watch(rank=rank, ranks=2, order=program.order[rank], board=board)
    began = time.monotonic()
    try:
        Executor(program=program, rank=rank, parts={(0, rank): part}, transport=transport, watch=watch).step()
    except StuckError as error:
        return str(error), time.monotonic() - began
    return "ended", 0.0
