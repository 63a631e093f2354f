"""A Program, run: each rank takes its operations in order, whatever schedule made them.

for each operation:
    its input        the data | from the neighbouring stage on this rank | from an edge
    forward, or one of the backwards
    what it made     to the neighbouring stage on this rank | to an edge
then all that was sent is waited for
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch

from ..pipeline.ir import Op, Program
from .backward import Live, of_input, of_weights, whole
from .inbox import Inbox, Outbox, inboxes
from .messages import Message, made, needed, received
from .transport import LateError, Transport
from .watch import StuckError, Watch

#: Messages of an edge that may be on their way before the first is waited for.
MOST_SENT = 32

Key = tuple[int, int, int, int]
"""(replica, stage, sequence, subsequence)."""


class StagePart(ABC):
    """One stage of one replica, as the executor meets it."""

    @abstractmethod
    def forward(self, op: Op, value: torch.Tensor | None) -> torch.Tensor:
        """The stage's output; of the last stage the loss. The first stage gets None and finds its own data."""

    @abstractmethod
    def parameters(self) -> Iterable[torch.nn.Parameter]:
        """Those whose gradients a backward gives."""

    @abstractmethod
    def buffer(self, message: Message) -> torch.Tensor:
        """A tensor for the stage's input, or for the gradient of its output."""

    @abstractmethod
    def before(self, op: Op) -> None:
        """Called before each operation."""

    @abstractmethod
    def after(self, op: Op) -> None:
        """Called when an operation is done, before what it made goes on."""

    @abstractmethod
    def finished(self) -> None:
        """Called after the stage's last operation of a step."""


@dataclass(kw_only=True)
class Outcome:
    """What one rank has after a step.

    Attributes:
        losses: of each sequence whose last stage is here, summed over its subsequences.
        peak: the most forwards whose backward was to come, at any time.
    """

    losses: dict[int, torch.Tensor] = field(default_factory=dict)
    peak: int = 0


@dataclass(frozen=True, kw_only=True)
class Executor:
    """Runs the operations of one rank of a Program.

    Args:
        rank: the place on the pipeline's axis.
        parts: each stage that the rank holds, by (replica, stage).
        window: receives of an edge that are posted ahead.
    """

    program: Program
    rank: int
    parts: Mapping[tuple[int, int], StagePart]
    transport: Transport
    watch: Watch
    window: int = 2
    lines: dict[bool, dict[int, list[Message]]] = field(default_factory=dict, repr=False)

    def comes(self, *, backward: bool) -> dict[int, list[Message]]:
        """What this rank receives in a step, by sender; the same every time, and read off the Program once."""
        if backward not in self.lines:
            self.lines[backward] = received(self.program, self.rank, backward=backward)
        return self.lines[backward]

    def step(self, *, backward: bool = True) -> Outcome:
        """Every operation of a step, or only the forwards.

        Raises:
            StuckError: a message did not come in time; it says what every rank was at.
        """
        run = _Run(executor=self, backward=backward)
        with self.watch.step():
            try:
                run.all()
            except LateError as error:
                raise StuckError(self.watch.report(str(error))) from error
        return run.outcome


@dataclass(kw_only=True)
class _Run:
    """One step under way."""

    executor: Executor
    backward: bool
    outcome: Outcome = field(default_factory=Outcome)
    live: dict[Key, Live] = field(default_factory=dict)
    here: dict[Message, torch.Tensor] = field(default_factory=dict)
    boxes: dict[int, Inbox] = field(default_factory=dict)

    def all(self) -> None:
        e = self.executor
        ops = [op for op in e.program.order[e.rank] if self.backward or op.kind == "F"]
        left = Counter((op.replica, op.stage) for op in ops)
        self.boxes = inboxes(
            e.comes(backward=self.backward), window=e.window, transport=e.transport, buffer=self.buffer
        )
        self.out = Outbox(transport=e.transport, most=MOST_SENT)
        for place, op in enumerate(ops):
            e.watch.at(place, op)
            self.one(op)
            left[op.replica, op.stage] -= 1
            if not left[op.replica, op.stage]:
                e.parts[op.replica, op.stage].finished()
        e.watch.at(len(ops), None)
        self.out.flush()
        assert not self.live, f"{len(self.live)} forwards have had no backward"
        assert not self.here, f"{len(self.here)} values were never used"

    def buffer(self, message: Message) -> torch.Tensor:
        return self.executor.parts[message.replica, message.stage].buffer(message)

    def one(self, op: Op) -> None:
        """One operation, with what comes in and what goes out."""
        part = self.executor.parts[op.replica, op.stage]
        message = needed(self.executor.program, op)
        value = self.take(message) if message is not None else None
        part.before(op)
        result = self.forward(part, op, value) if op.kind == "F" else self.back(part, op, value)
        part.after(op)
        target = made(self.executor.program, op) if self.backward or op.kind == "F" else None
        if target is not None:
            assert result is not None
            self.give(target, result)

    def take(self, message: Message) -> torch.Tensor:
        """A message's value, from this rank or another."""
        if message in self.here:
            return self.here.pop(message)
        stage = message.stage - 1 if message.kind == "F" else message.stage + 1
        source = self.executor.program.host[message.replica, stage]
        assert source != self.executor.rank, f"{message} is used before it is made"
        self.executor.watch.awaits(source, message)
        value = self.boxes[source].take(message)
        self.executor.watch.awaits(None, None)
        return value

    def give(self, message: Message, value: torch.Tensor) -> None:
        """A value to its next stage."""
        target = self.executor.program.host[message.replica, message.stage]
        if target == self.executor.rank:
            self.here[message] = value
        else:
            self.out.send(target, value.contiguous())

    def forward(self, part: StagePart, op: Op, value: torch.Tensor | None) -> torch.Tensor:
        with torch.set_grad_enabled(self.backward):
            if value is not None:
                value = value.detach().requires_grad_(self.backward)
            output = part.forward(op, value)
        if op.stage == self.executor.program.stages - 1:
            before = self.outcome.losses.get(op.sequence)
            self.outcome.losses[op.sequence] = output.detach() if before is None else before + output.detach()
        if self.backward:
            self.live[_key(op)] = Live(value=value, output=output)
            self.outcome.peak = max(self.outcome.peak, len(self.live))
        return output.detach()

    def back(self, part: StagePart, op: Op, grad: torch.Tensor | None) -> torch.Tensor | None:
        live = self.live[_key(op)]
        if op.kind == "I":
            return of_input(live, grad, part.parameters())
        del self.live[_key(op)]
        if op.kind == "W":
            return of_weights(live, part.parameters())
        return whole(live, grad)


def _key(op: Op) -> Key:
    return op.replica, op.stage, op.sequence, op.subsequence
