"""What each rank of a pipeline is at, told when one of them waits in vain instead of hanging.

A rank whose message does not come writes down what it is at and asks the others. A thread on each
of them hears that and answers, whatever the rank itself is waiting for.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..pipeline.ir import Op
from .messages import Message


class StuckError(RuntimeError):
    """A step of a pipeline that does not go on; the text says what every rank was at."""


class Board(Protocol):
    """Where ranks write for each other; torch's stores are one."""

    def set(self, key: str, value: str) -> Any:
        """Write a value under a key."""
        ...

    def get(self, key: str) -> bytes:
        """The value of a key that is there."""
        ...

    def check(self, keys: list[str]) -> bool:
        """Whether each key is there."""
        ...


@dataclass(kw_only=True)
class Watch:
    """What this rank is at, and how it learns what the others are.

    Args:
        order: operations of this rank in a step. ranks: of the pipeline.
        board: None for a rank that has no one to ask.
        patience: seconds to wait for the others' answers.
    """

    rank: int
    ranks: int
    order: Sequence[Op]
    board: Board | None = None
    patience: float = 3.0
    place: int = 0
    now: Op | None = None
    wanted: tuple[int, Message] | None = None
    running: bool = False
    steps: int = 0
    thread: threading.Thread | None = field(default=None, repr=False)
    ended: threading.Event = field(default_factory=threading.Event, repr=False)

    @contextmanager
    def step(self) -> Iterator[None]:
        """A step begins and ends."""
        self.steps, self.running = self.steps + 1, True
        if self.board is not None and self.thread is None:
            self.thread = threading.Thread(target=self._answer, name="meshlang-watch", daemon=True)
            self.thread.start()
            atexit.register(self.close)
        try:
            yield
            self.running = False
        finally:
            self.wanted = None

    def close(self) -> None:
        """Answer no more. A thread that is inside torch's store when Python ends would abort the process."""
        atexit.unregister(self.close)
        self.ended.set()
        if self.thread is not None:
            self.thread.join(timeout=self.patience)

    def at(self, place: int, op: Op | None) -> None:
        """The rank takes its next operation; None is after the last."""
        self.place, self.now = place, op

    def awaits(self, source: int | None, message: Message | None) -> None:
        """The rank needs a message of another now, or has it."""
        self.wanted = (source, message) if source is not None and message is not None else None

    def said(self) -> str:
        """What this rank is at, in a line."""
        if not self.running:
            return f"rank {self.rank}: has ended step {self.steps}" if self.steps else f"rank {self.rank}: not begun"
        if self.now is None:
            return f"rank {self.rank}: has done all {len(self.order)} operations, waits until what it sent has come"
        line = f"rank {self.rank}: at {self.now}, operation {self.place + 1} of {len(self.order)}"
        if self.wanted is None:
            return f"{line}, computes or sends"
        return f"{line}, waits for {self.wanted[1]} from rank {self.wanted[0]}"

    def report(self, reason: str) -> str:
        """What every rank is at; one that does not answer is named too."""
        lines = {self.rank: self.said()}
        if self.board is not None:
            self.board.set(f"{_SAID}{self.rank}", lines[self.rank])
            self.board.set(_ASKED, str(self.rank))
            lines |= self._heard(self.board)
        for rank in range(self.ranks):
            lines.setdefault(rank, f"rank {rank}: gives no answer")
        told = "".join(f"\n  {lines[rank]}" for rank in sorted(lines))
        return f"the pipeline does not go on ({reason}){told}"

    def _heard(self, board: Board) -> dict[int, str]:
        """What the others have answered in time."""
        end, found = time.monotonic() + self.patience, dict[int, str]()
        while len(found) < self.ranks - 1 and time.monotonic() < end:
            for rank in range(self.ranks):
                key = f"{_SAID}{rank}"
                if rank != self.rank and rank not in found and board.check([key]):
                    found[rank] = board.get(key).decode()
            time.sleep(0.02)
        return found

    def _answer(self) -> None:
        """Answer once, when any rank asks."""
        assert self.board is not None
        try:
            while not self.board.check([_ASKED]):
                if self.ended.wait(0.2):
                    return
            self.board.set(f"{_SAID}{self.rank}", self.said())
        except RuntimeError:  # the store has gone, and with it everyone who could ask
            return


_ASKED = "meshlang/pipeline/asked"
_SAID = "meshlang/pipeline/said/"
