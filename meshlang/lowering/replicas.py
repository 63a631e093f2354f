"""Two replicas of a stage, kept one: gradients are summed at the first, weights come from it.

The first replica's copy is the one that an optimizer steps, a checkpoint saves and a norm counts.
After its last backward the second's gradients are sent to it, and before the next step its weights
are sent back. Of the stages that two ranks share each has the first replica of half, so both send
and receive as much as an all-reduce would, and no optimizer state is held twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from ..pipeline.ir import Program

Pair = tuple[int, int]
"""Places on the pipeline's axis: of the first replica's copy, and of the second's."""


def pairs(program: Program) -> dict[int, Pair]:
    """Stage -> where its two copies lie."""
    if program.replicas == 1:
        return {}
    assert program.replicas == 2, program.replicas
    return {stage: (program.host[0, stage], program.host[1, stage]) for stage in range(program.stages)}


def pair_groups(program: Program, pipelines: Sequence[Sequence[int]]) -> dict[frozenset[int], dist.ProcessGroup]:
    """A group for every two ranks that share a stage, by their places; every rank of the world calls it.

    Gradients and weights have it for themselves: they never wait behind what the stages send.
    """
    wanted = sorted({tuple(sorted(pair)) for pair in pairs(program).values() if pair[0] != pair[1]})
    here, made = dist.get_rank(), dict[frozenset[int], dist.ProcessGroup]()
    for ranks in pipelines:
        for pair in wanted:
            members = [ranks[place] for place in pair]
            group = dist.new_group(members)
            if here in members:
                assert isinstance(group, dist.ProcessGroup)
                made[frozenset(pair)] = group
    return made


@dataclass(kw_only=True)
class Sums:
    """The replicas of one rank of a pipeline.

    Args:
        rank: the place on the axis; `ranks` are the global ranks by place.
        eager: a stage's gradients go as soon as those of all later stages of the pair have; or all at the end.
        modules: each stage that the rank holds, by (replica, stage).
    """

    program: Program
    rank: int
    ranks: Sequence[int]
    modules: Mapping[tuple[int, int], nn.Module]
    groups: Mapping[frozenset[int], dist.ProcessGroup]
    eager: bool = True
    ready: set[tuple[int, int]] = field(default_factory=set)
    waiting: dict[frozenset[int], list[int]] = field(default_factory=dict)
    going: list[tuple[dist.Work, torch.Tensor, list[torch.Tensor]]] = field(default_factory=list)
    """What was sent, or comes, with the gradients that it is to be added to."""

    def begin(self) -> None:
        """A step begins: each pair will take its stages from last to first, whichever is ready earlier."""
        self.ready.clear()
        self.waiting = {}
        for stage, pair in sorted(pairs(self.program).items(), reverse=True):
            if self.rank in pair:
                self.waiting.setdefault(frozenset(pair), []).append(stage)

    def finished(self, replica: int, stage: int) -> None:
        """The gradients of a copy are complete on this rank."""
        self.ready.add((replica, stage))
        there = pairs(self.program).get(stage)
        if there is not None and self.eager:
            self._go(self.waiting[frozenset(there)])

    def _go(self, line: list[int]) -> None:
        while line and self._ready(line[0]):
            self._sum(line.pop(0))

    def _ready(self, stage: int) -> bool:
        return all((replica, stage) in self.ready for replica in (0, 1) if (replica, stage) in self.modules)

    def _sum(self, stage: int) -> None:
        first, second = pairs(self.program)[stage]
        if first == second:
            own, other = (gradients(self.modules[replica, stage]) for replica in (0, 1))
            add(own, other)
            forget(self.modules[1, stage])
            return
        module, group = self.modules[int(self.rank != first), stage], self.groups[frozenset((first, second))]
        for flat, parts in flattened(gradients(module)):
            if self.rank == first:
                flat = torch.empty_like(flat)
                work = dist.irecv(flat, src=self.ranks[second], group=group)
            else:
                work, parts = dist.isend(flat, dst=self.ranks[first], group=group), []
            assert work is not None
            self.going.append((work, flat, parts))
        if self.rank != first:
            forget(module)

    def end(self) -> None:
        """All sums are in the first replica's gradients."""
        for line in self.waiting.values():
            self._go(line)
        assert not any(self.waiting.values()), f"gradients of stages {self.waiting} were never summed"
        for work, flat, parts in self.going:
            work.wait()
            add(parts, pieces(flat, parts))
        self.going.clear()

    @torch.no_grad()
    def follow(self) -> None:
        """The second replica's weights, and what else a checkpoint has of it, are the first's."""
        for stage, (first, second) in sorted(pairs(self.program).items()):
            if self.rank not in (first, second):
                continue
            if first == second:
                for mine, theirs in zip(*(states(self.modules[r, stage]) for r in (1, 0)), strict=True):
                    mine.copy_(theirs)
                continue
            kept = states(self.modules[int(self.rank != first), stage])
            group = self.groups[frozenset((first, second))]
            for flat, parts in flattened(kept):
                if self.rank == first:
                    dist.send(flat, dst=self.ranks[second], group=group)
                    continue
                dist.recv(flat, src=self.ranks[first], group=group)
                for part, piece in zip(parts, pieces(flat, parts), strict=True):
                    part.copy_(piece)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def gradients(module: nn.Module) -> list[torch.Tensor]:
    """This rank's part of each parameter's gradient."""
    return [local(p.grad) for p in module.parameters() if p.grad is not None]


def states(module: nn.Module) -> list[torch.Tensor]:
    """This rank's part of each parameter and each buffer that is saved."""
    kept = [*module.parameters(), *(b for name, b in module.named_buffers() if name in _saved(module))]
    return [local(each.detach()) for each in kept]


def _saved(module: nn.Module) -> set[str]:
    """Buffers that are saved, by fqn."""
    found = set[str]()
    for prefix, each in module.named_modules():
        own = (name for name, _ in each.named_buffers(recurse=False) if name not in each._non_persistent_buffers_set)
        found |= {f"{prefix}.{name}".removeprefix(".") for name in own}
    return found


def forget(module: nn.Module) -> None:
    """The module's gradients are elsewhere now."""
    for parameter in module.parameters():
        parameter.grad = None


def flattened(tensors: Iterable[torch.Tensor]) -> Iterator[tuple[torch.Tensor, list[torch.Tensor]]]:
    """Tensors of one element type after each other as one, with what it was made of."""
    ordered = sorted(tensors, key=lambda each: str(each.dtype))
    for _, same in groupby(ordered, key=lambda each: each.dtype):
        parts = list(same)
        yield torch.cat([part.reshape(-1) for part in parts]), parts


def pieces(flat: torch.Tensor, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """`flat` in pieces of the shapes of the parts."""
    if not parts:
        return []
    cut = flat.split([part.numel() for part in parts])
    return [piece.view(part.shape) for part, piece in zip(parts, cut, strict=True)]


def add(parts: Sequence[torch.Tensor], more: Sequence[torch.Tensor]) -> None:
    """Add to each part, in place."""
    for part, piece in zip(parts, more, strict=True):
        part += piece
