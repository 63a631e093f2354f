"""Orders that cannot go on end with what each rank is at; those that can never wait in vain."""

import os
import random
import time
from dataclasses import replace

import pytest
import torch
from pipelined import Case, run
from programs import Named, scrambled

from meshlang.lowering.execute import Executor, StagePart, StuckError
from meshlang.lowering.messages import Message, edges, received, sent
from meshlang.lowering.watch import Watch
from meshlang.pipeline.ir import Op, Program
from meshlang.testing.wires import Wires, on_threads

#: Random Programs that are run; a thousand where all is asked for.
RUNS = 1000 if os.environ.get("MESHLANG_PARITY") else 60


def swapped(program: Program, rank: int, first: Op, second: Op) -> Program:
    """The Program with two operations of a rank in each other's place."""
    other = {first: second, second: first}
    row = tuple(other.get(op, op) for op in program.order[rank])
    return replace(program, order=(*program.order[:rank], row, *program.order[rank + 1 :]))


def test_a_wrong_order_ends_with_a_report() -> None:
    """Two ranks that wait for each other end within seconds, and the error says what each is at."""
    program = Named("seq1f1b", 2, 1, 2, 1).program()
    wrong = swapped(program, 0, Op("F", 0, 1, 0, 0), Op("B", 0, 1, 0, 0))
    began = time.monotonic()
    with pytest.raises(StuckError) as caught:
        run(Case(program=wrong, lengths=(24,), limit=1.0))
    assert time.monotonic() - began < 20
    text = str(caught.value)
    assert "rank 0: at B1.0@0, operation 2 of 4, waits for the gradient for B1.0@0 from rank 1" in text
    assert "rank 1: at F1.0@1, operation 3 of 4, waits for the input of F1.0@1 from rank 0" in text


def test_a_rank_that_is_silent_is_named() -> None:
    """A rank that gives no answer is in the report too."""
    watch = Watch(rank=0, ranks=2, order=(), board=Wires(), patience=0.1)
    assert watch.report("late").splitlines() == [
        "the pipeline does not go on (late)",
        "  rank 0: not begun",
        "  rank 1: gives no answer",
    ]


def test_a_rank_that_computes_answers_too() -> None:
    """A rank that waits for no one is asked by a thread, and says what it is at."""
    program, wires = Named("seq1f1b", 2, 1, 1, 1).program(), Wires()
    busy = Watch(rank=1, ranks=2, order=program.order[1], board=wires)
    waiting = Watch(rank=0, ranks=2, order=program.order[0], board=wires)
    with busy.step(), waiting.step():
        busy.at(0, program.order[1][0])
        assert waiting.report("late").splitlines()[2] == "  rank 1: at F0.0@1, operation 1 of 2, computes or sends"


def test_no_thread_is_left_inside_the_store() -> None:
    """A closed watch has no thread that still asks: one that Python cuts off there aborts the process."""
    watch = Watch(rank=0, ranks=2, order=(), board=Wires())
    with watch.step():
        assert watch.thread is not None
        assert watch.thread.is_alive()
    watch.close()
    assert not watch.thread.is_alive()


class Numbers(StagePart):
    """A stage that adds its number to what comes, after a random delay; gradients are all one."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, op: Op, value: torch.Tensor | None) -> torch.Tensor:
        """One more than came in."""
        return (value if value is not None else torch.zeros(())) + self.weight

    def parameters(self) -> list[torch.nn.Parameter]:
        """The one weight."""
        return [self.weight]

    def buffer(self, message: Message) -> torch.Tensor:
        """A number."""
        return torch.empty(())

    def before(self, op: Op) -> None:
        """A rank may be late at any operation."""
        time.sleep(self.draw.choice((0, 0, 0, 0.001, 0.003)))

    def after(self, op: Op) -> None:
        """Nothing."""

    def finished(self) -> None:
        """Nothing."""


@pytest.mark.parity
def test_random_orders_come_to_their_end() -> None:
    """Random places, orders and delays, one receive at a time on each edge: every run ends, with all gradients."""
    for seed in range(RUNS):
        program, wires = scrambled(seed), Wires()
        watches = [Watch(rank=r, ranks=program.ranks, order=o, board=wires) for r, o in enumerate(program.order)]
        gradients = on_threads(program.ranks, lambda rank, p=program, w=watches, s=seed: numbers(p, w[rank], s))
        for each in watches:
            each.close()
        per_stage = program.sequences * program.subsequences
        assert sum(sum(found) for found in gradients) == per_stage * program.stages, seed


def numbers(program: Program, watch: Watch, seed: int) -> list[float]:
    """The gradients of a rank's stages after a step."""
    assert isinstance(watch.board, Wires)
    rank, transport = watch.rank, watch.board.end(watch.rank)
    parts = {key: Numbers(random.Random(f"{seed} {key}")) for key in program.held(rank)}
    executor = Executor(program=program, rank=rank, parts=parts, transport=transport, watch=watch, window=1)
    losses = executor.step().losses
    assert all(loss == program.stages * program.subsequences for loss in losses.values())
    return [float(part.weight.grad) for part in parts.values() if part.weight.grad is not None]


@pytest.mark.parametrize("seed", range(8))
def test_receives_follow_the_sender(seed: int) -> None:
    """What a rank receives from another is what that sends it, in its order; and only edges carry something."""
    program = scrambled(seed)
    for rank in range(program.ranks):
        for source, messages in received(program, rank).items():
            assert messages == [message for to, message in sent(program, source) if to == rank]
            assert messages == [] or (source, rank) in edges(program)
