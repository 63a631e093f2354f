"""What is assumed of the machine, and how long moving bytes over its links takes under that.

    all-gather, reduce-scatter   S (n - 1) / n bytes pass each rank, of S on the larger side; all-reduce twice that
                                 (nccl-tests, doc/PERFORMANCE.md: the factors of "bus bandwidth")
    all-to-all                   S (n - 1) / n, of S on each rank
    send                         S
    steps                        log2 n of a gather, scatter or all-to-all, 2 log2 n of an all-reduce, of a latency each
                                 (Thakur, Rabenseifner, Gropp 2005, sections 4 and 5)

A group of k nodes with m ranks on each has m network links a node: each carries its part of what enters a
node, S (k - 1) / k / m, while S (n - 1) / n pass inside; the slower of the two counts. So a group with one rank
a node has one link, and a group of whole nodes all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, log2

from ..mesh import Mesh
from ..plan.ir import Kind


def _said(default: float, unit: str, says: str) -> float:
    return field(default=default, metadata={"unit": unit, "says": says})


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Every assumption; the figures are of a node of eight H100 SXM with a link of 400 Gb/s each.

    Peaks are NVIDIA's, of the H100 SXM (dense bfloat16 989 TFLOP/s, 3.35 TB/s, NVLink 450 GB/s each way). The
    shares of them are usual ones, not measured here.
    """

    tflops: float = _said(989.0, "TFLOP/s", "peak of a rank's products in the type that is computed in")
    products: float = _said(0.6, "of it", "that products with weights reach")
    attention: float = _said(0.4, "of it", "that attention reaches")
    memory_speed: float = _said(3350.0, "GB/s", "of a rank's own memory")
    link: float = _said(360.0, "GB/s", "to each rank from the others of its node (80 % of NVLink)")
    link_between: float = _said(40.0, "GB/s", "to each rank from other nodes (80 % of 400 Gb/s)")
    latency: float = _said(5.0, "us", "of each step of a call inside a node")
    latency_between: float = _said(15.0, "us", "of each step of a call between nodes")
    overlap: float = _said(0.8, "of computing", "hides calls for weights and gradients; of attention, its exchange")
    reserve: float = _said(0.1, "of memory", "is left for what a plan does not count")
    ranks_per_node: int = 8

    # Computing

    def product_time(self, flops: float) -> float:
        """Seconds of products with weights."""
        return flops / (self.tflops * 1e12 * self.products)

    def attention_time(self, flops: float) -> float:
        """Seconds of attention."""
        return flops / (self.tflops * 1e12 * self.attention)

    def touch_time(self, count: float) -> float:
        """Seconds in which so many bytes are read or written."""
        return count / (self.memory_speed * 1e9)

    # Links

    def group(self, mesh: Mesh, axes: Iterable[str]) -> Group:
        """The ranks along some axes, and how many of them share a node with one."""
        ranks, here = 1, 1
        for axis in axes:
            size, inner = mesh.size(axis), mesh.product(mesh.names[mesh.names.index(axis) + 1 :])
            ranks *= size
            here *= max(1, min(size, self.ranks_per_node // inner))
        return Group(ranks=ranks, here=here)

    def delay(self, kind: Kind, group: Group) -> float:
        """Seconds of a call of no bytes."""
        steps = 1 if kind == "send" else ceil(log2(max(group.ranks, 1))) * (2 if kind == "all_reduce" else 1)
        return steps * (self.latency if group.nodes == 1 else self.latency_between) * 1e-6

    def per_byte(self, kind: Kind, group: Group) -> float:
        """Seconds for each byte of a call."""
        inside, between = 1e-9 / self.link, 1e-9 / self.link_between
        n, m, k = group.ranks, group.here, group.nodes
        if kind == "send":
            return inside if k == 1 else between
        if kind == "all_to_all":
            return max((m - 1) / n * inside, (n - m) / n * between)
        twice = 2 if kind == "all_reduce" else 1
        return twice * max((n - 1) / n * inside if m > 1 else 0.0, (k - 1) / k / m * between)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Ranks that call together, `here` of them on one node."""

    ranks: int
    here: int

    @property
    def nodes(self) -> int:
        """Nodes that they lie on."""
        return -(-self.ranks // self.here)
