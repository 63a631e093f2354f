"""Which coordinate of the pipeline axis each position of a schedule takes, where several share a node.

Two replicas send along the chain of positions, and sum gradients between a position and its mirror
image. `folded` puts both on one node: node i has the positions i G / 2 to (i + 1) G / 2 - 1 and their
mirror images, G coordinates a node.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from .ir import Host, Program

Mapping = Literal["folded", "contiguous", "bitpipe"]


def places(mapping: Mapping, ranks: int, per_node: int) -> tuple[int, ...]:
    """For each position its coordinate."""
    if mapping == "contiguous":
        return tuple(range(ranks))
    if mapping == "bitpipe":  # BitPipe's published order of ranks: pairs become neighbours
        return tuple(position if position % 2 == 0 else ranks - position for position in range(ranks))
    half = per_node // 2
    first = [position // half * per_node + position % half for position in range(ranks // 2)]
    return (*first, *(place + half for place in reversed(first)))


def best(ranks: int, per_node: int) -> Mapping:
    """Folded, where nodes are few and can be filled so; from four nodes on, a chain is as good."""
    folds = per_node > 1 and per_node % 2 == 0 and ranks % per_node == 0
    return "folded" if folds and ranks < 4 * per_node else "contiguous"


def moved(program: Program, to: tuple[int, ...]) -> Program:
    """The same schedule, each position at its coordinate."""
    rows = sorted(zip(to, program.order, strict=True), key=lambda each: each[0])
    return replace(
        program,
        hosts=tuple(Host(host.replica, host.stage, to[host.rank]) for host in program.hosts),
        order=tuple(row for _, row in rows),
    )


def crossings(program: Program, per_node: int) -> tuple[int, int]:
    """(neighbouring ranks, pairs of a stage's two ranks) that lie on different nodes."""
    at, last = program.host, program.stages - 1
    hops = {frozenset((at[r, k], at[r, k + 1])) for r, k in at if k < last}
    pairs = {frozenset((at[0, k], at[1, k])) for k in range(program.stages)} if program.replicas > 1 else set()
    return _apart(hops, per_node), _apart(pairs, per_node)


def _apart(pairs: set[frozenset[int]], per_node: int) -> int:
    return sum(len({rank // per_node for rank in pair}) > 1 for pair in pairs)
