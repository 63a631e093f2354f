"""What has come from one rank, what is on its way, and what will be asked for next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .messages import Message
from .transport import Transport


@dataclass(kw_only=True)
class Inbox:
    """Messages of one directed edge, received in the order in which they are sent.

    `window` receives are posted at any time, so that a sender finds one. A message that is asked
    for later than one sent after it waits in `early`.

    Args:
        buffer: a tensor that a message fits in.
    """

    source: int
    coming: deque[Message]
    window: int
    transport: Transport
    buffer: Callable[[Message], torch.Tensor]
    posted: deque[tuple[Message, torch.Tensor, Any]] = field(default_factory=deque)
    early: dict[Message, torch.Tensor] = field(default_factory=dict)

    def fill(self) -> None:
        """Post receives until the window is full."""
        while self.coming and len(self.posted) < self.window:
            message = self.coming.popleft()
            buffer = self.buffer(message)
            self.posted.append((message, buffer, self.transport.post(self.source, buffer)))

    def take(self, message: Message) -> torch.Tensor:
        """The message, when it has come."""
        while message not in self.early:
            assert self.posted, f"rank {self.source} never sends {message}"
            next_, buffer, handle = self.posted[0]
            self.transport.wait(handle)
            self.posted.popleft()
            self.early[next_] = buffer
            self.fill()
        return self.early.pop(message)


@dataclass(kw_only=True)
class Outbox:
    """What was sent and may still be on its way: it is kept, and waited for when the step ends.

    `most` messages of an edge are kept before the first is waited for. Its receive is posted by then
    on the other side, or will be without anything that this rank has yet to do: the checker of
    Programs asks for that with one message an edge.
    """

    transport: Transport
    most: int
    under_way: dict[int, deque[tuple[torch.Tensor, Any]]] = field(default_factory=dict)

    def send(self, target: int, value: torch.Tensor) -> None:
        """Send, without waiting for this message."""
        line = self.under_way.setdefault(target, deque())
        line.append((value, self.transport.send(target, value)))
        if len(line) > self.most:
            self.transport.wait(line[0][1])
            line.popleft()

    def flush(self) -> None:
        """Wait until all has gone."""
        for line in self.under_way.values():
            while line:
                self.transport.wait(line[0][1])
                line.popleft()


def inboxes(
    received: dict[int, list[Message]],
    *,
    window: int,
    transport: Transport,
    buffer: Callable[[Message], torch.Tensor],
) -> dict[int, Inbox]:
    """An inbox for each rank that something comes from, with its first receives posted."""
    found = {}
    for source, messages in received.items():
        line = deque[Message](_checked(messages))
        found[source] = Inbox(source=source, coming=line, window=window, transport=transport, buffer=buffer)
        found[source].fill()
    return found


def _checked(messages: Sequence[Message]) -> Sequence[Message]:
    assert len(set(messages)) == len(messages), "a message is sent twice"
    return messages
