"""The ranks of a pipeline as threads of one process: what is sent is copied, and nothing else is shared.

Sends never wait; a message arrives when its receive is posted. So orders, windows and values can be
tried by the thousand, without process groups.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch

from ..lowering.transport import LateError


@dataclass(kw_only=True)
class Wires:
    """All edges between the ranks of a pipeline, and where ranks write for each other."""

    limit: float = 20.0
    changed: threading.Condition = field(default_factory=threading.Condition)
    sent: dict[tuple[int, int], deque[tuple[torch.Tensor, threading.Event]]] = field(default_factory=dict)
    posted: dict[tuple[int, int], deque[tuple[torch.Tensor, threading.Event]]] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)

    def end(self, rank: int) -> WireEnd:
        """The transport of one rank."""
        return WireEnd(wires=self, rank=rank)

    def match(self, edge: tuple[int, int]) -> None:
        """Deliver, in order, what has been sent and has a receive."""
        sent, posted = self.sent.setdefault(edge, deque()), self.posted.setdefault(edge, deque())
        while sent and posted:
            (value, gone), (buffer, come) = sent.popleft(), posted.popleft()
            assert value.shape == buffer.shape, (edge, value.shape, buffer.shape)
            buffer.copy_(value)
            gone.set()
            come.set()

    def put(self, where: str, edge: tuple[int, int], tensor: torch.Tensor) -> threading.Event:
        """Add a sent value, or a posted buffer."""
        event = threading.Event()
        with self.changed:
            getattr(self, where).setdefault(edge, deque()).append((tensor, event))
            self.match(edge)
        return event

    def set(self, key: str, value: str) -> None:
        """Write for the other ranks, as torch's stores do."""
        self.said[key] = value

    def get(self, key: str) -> bytes:
        """What was written."""
        return self.said[key].encode()

    def check(self, keys: list[str]) -> bool:
        """Whether all is written."""
        return all(key in self.said for key in keys)


@dataclass(frozen=True, kw_only=True)
class WireEnd:
    """A `Transport` of one rank."""

    wires: Wires
    rank: int

    def post(self, source: int, buffer: torch.Tensor) -> threading.Event:
        """See Transport."""
        return self.wires.put("posted", (source, self.rank), buffer)

    def send(self, target: int, value: torch.Tensor) -> threading.Event:
        """See Transport."""
        return self.wires.put("sent", (self.rank, target), value)

    def wait(self, handle: threading.Event) -> None:
        """See Transport."""
        if not handle.wait(self.wires.limit):
            raise LateError(f"nothing came for {self.wires.limit:g} s")


def on_threads(ranks: int, run: Callable[[int], Any]) -> list[Any]:
    """What `run` gives for each rank, all at the same time; the first exception of any is raised.

    Each rank computes on its one thread: with torch's own threads for each, few cores would mostly wait.
    """
    with ThreadPoolExecutor(ranks, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        futures = [pool.submit(run, rank) for rank in range(ranks)]
        return [future.result() for future in futures]
