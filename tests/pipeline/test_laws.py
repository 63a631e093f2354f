"""Laws of Programs: every schedule keeps them, and a fault that was planted is refused with its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from every_program import PROGRAMS, some

from meshlang.pipeline.edges import edges, receive_buffers
from meshlang.pipeline.ir import Host, Op, Program
from meshlang.pipeline.laws import program_problems
from meshlang.pipeline.lower import blocked, lowered
from meshlang.pipeline.notation import cells_of, program_data, program_of, read_program
from meshlang.pipeline.sequence_orders import seq1f1b
from meshlang.pipeline.simulate import simulate

#: Schedules whose ranks take messages in the order in which they are sent; the others need two buffers a pair.
#: So do those whose stages loop over two ranks, where both ways share a pair.
QUEUES = sorted({*PROGRAMS} - {"dualpipe", "dualpipev", "interleaved_zero_bubble", "seq1f1b_interleaved", "zbv"})
SEEDS = range(60)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_schedules_keep_the_laws(name: str) -> None:
    """Every schedule does all once, in an order that comes to its end, also where every send waits."""
    for p, v, m, s in product((1, 2, 3), (1, 2), (1, 3, 4), (1, 2, 3)):
        program = PROGRAMS[name](p, v, m, s)
        assert program_problems(program, buffers=1 if name in QUEUES else 2) == []
        assert receive_buffers(program) <= (1 if name in QUEUES else 2)
        assert blocked(lowered(program, simulate(program))) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_programs_are_data(seed: int) -> None:
    """A Program is read back from its data, and one of a single replica from torch's notation."""
    _, program = some(seed)
    assert read_program(program_data(program)) == program
    if program.replicas == 1:
        assert program_of(cells_of(program), program.subsequences) == program


def _with_row(program: Program, rank: int, row: Sequence[Op]) -> Program:
    order = list(program.order)
    order[rank] = tuple(row)
    return replace(program, order=tuple(order))


@pytest.mark.parametrize("seed", SEEDS)
def test_swapped_carry_is_refused(seed: int) -> None:
    """Two subsequences of one sequence that change places on a stage are refused at the first of them."""
    random = Random(seed)
    _, program = some(seed, names=("bsipipe", "seq1f1b", "seq1f1b_interleaved", "seqv"), least=2)
    rank = random.randrange(program.ranks)
    row = list(program.order[rank])
    op = random.choice([each for each in row if each.subsequence])
    a, b = sorted((row.index(op), row.index(replace(op, subsequence=op.subsequence - 1))))
    row[a], row[b] = row[b], row[a]
    found = program_problems(_with_row(program, rank, row))
    assert [(each.row, each.cell) for each in found] == [(rank, a)]
    assert f"{row[a]} stands before" in found[0].message


@pytest.mark.parametrize("seed", SEEDS)
def test_missing_operation_is_refused(seed: int) -> None:
    """An operation that was left out is named, with the rank that lacks it."""
    random = Random(seed)
    _, program = some(seed)
    rank = random.choice([rank for rank, row in enumerate(program.order) if row])
    row = list(program.order[rank])
    gone = row.pop(random.randrange(len(row)))
    found = program_problems(_with_row(program, rank, row), buffers=None)
    assert [each.row for each in found] == [rank]
    assert found[0].message.endswith("is missing")
    assert str(gone)[1:] in found[0].message


@pytest.mark.parametrize("seed", SEEDS)
def test_second_operation_is_refused(seed: int) -> None:
    """An operation that is there twice is refused at the second."""
    random = Random(seed)
    _, program = some(seed)
    rank = random.choice([rank for rank, row in enumerate(program.order) if row])
    row = list(program.order[rank])
    place = random.randrange(len(row))
    found = program_problems(_with_row(program, rank, [*row, row[place]]))
    assert [(each.row, each.cell) for each in found] == [(rank, len(row))]
    assert found[0].message == f"{row[place]} is there more than once"


@pytest.mark.parametrize("seed", SEEDS)
def test_operation_on_another_rank_is_refused(seed: int) -> None:
    """An operation on a rank that does not hold its stage is refused, with both ranks."""
    random = Random(seed)
    _, program = some(seed, least=2)
    here, there = random.sample(range(program.ranks), 2)
    op = random.choice(program.order[here])
    row = [*program.order[there], op]
    without = _with_row(program, here, [each for each in program.order[here] if each != op])
    found = program_problems(_with_row(without, there, row))
    assert [(each.row, each.cell) for each in found] == [(there, len(row) - 1)]
    assert found[0].message.startswith(f"{op} stands on rank {there}, and")
    assert found[0].message.endswith(f"lies on rank {here}")


def _crossed(program: Program) -> tuple[Program, int] | None:
    """Two ranks made to wait for each other: a backward put before a forward that its own gradient waits for."""
    place = {op: at for row in program.order for at, op in enumerate(row)}
    last = program.subsequences - 1
    for (rank, other), messages in edges(program).items():
        row = program.order[rank]
        for message in (each for each in messages if each.made_by.kind == "F"):
            first, taken = message.made_by, message.for_
            for op in row[place[first] :]:
                given = replace(op, stage=op.stage + 1)
                if op.kind == "B" and op.subsequence == last and op.sequence != first.sequence:
                    forward = replace(op, kind="F")
                    waits = program.host.get((given.replica, given.stage)) == other and place[given] > place[taken]
                    if waits and place[forward] < place[first]:
                        moved = [each for each in row if each != op]
                        moved.insert(moved.index(first), op)
                        return _with_row(program, rank, moved), rank
    return None


@pytest.mark.parametrize("name", [name for name in QUEUES if name != "gpipe"])
def test_ranks_that_wait_for_each_other_are_told(name: str) -> None:
    """Two ranks each of which needs first what the other does later are refused with the circle of waits."""
    made = [_crossed(PROGRAMS[name](p, v, m, s)) for p, v, m, s in product((2, 3), (1, 2), (4,), (1, 2))]
    crossed = [each for each in made if each is not None]
    assert crossed
    for program, rank in crossed:
        (found,) = program_problems(program)
        assert found.message.startswith("no rank can go on: rank ")
        assert f"rank {rank} waits at " in found.message
        assert found.message.count("waits at") >= 2
        assert found.row is not None
        assert found.cell is not None
        told = program.order[found.row][found.cell]
        assert f"rank {found.row} waits at {told} for" in found.message


def test_a_message_behind_another_is_told() -> None:
    """With one buffer a pair, a message that is needed before one that was sent earlier never comes."""
    program = PROGRAMS["zbv"](2, 2, 4, 1)
    (found,) = program_problems(program)
    assert "which sent F2.0@0 before it" in found.message
    assert program_problems(program, buffers=2) == []


def test_what_a_runtime_needs_one_buffer_for() -> None:
    """Neighbours talk one way a pair, or in slots, so BSIPipe's messages are taken as they are sent."""
    for p, v, m, s in product((1, 2, 3), (1, 2, 3), (1, 2), (1, 2, 3, 5)):
        assert receive_buffers(PROGRAMS["bsipipe"](p, v, m, s)) == 1


def test_blocking_sends_in_a_circle_are_told() -> None:
    """Two ranks that both send before they receive wait for each other where sends wait."""
    program = seq1f1b(2, 2, 1)
    rows = [list(row) for row in lowered(program, simulate(program))]
    assert blocked(rows) == []
    both = [next(i for i, event in enumerate(row) if event.sender != event.receiver) for row in rows]
    later = next(event for event in rows[0] if event.sender == 1)
    rows[0].remove(later)
    rows[0].insert(both[0], later)
    (found,) = blocked(rows)
    assert found.message.startswith("no rank can go on: rank 0 waits at the message of B0.0@1 from rank 1 to rank 0;")


def test_places_of_stages_are_held() -> None:
    """A stage on no rank, on two, or on one that there is not, and a row too few are refused."""
    program = seq1f1b(2, 1, 1)
    first, second = program.hosts
    cases = [
        (replace(program, hosts=(first,)), "stage 1 of replica 0 lies on no rank"),
        (replace(program, hosts=(first, first, second)), "stage 0 of replica 0 lies on 2 ranks"),
        (replace(program, hosts=(*program.hosts, Host(1, 0, 0))), "stage 0 of replica 1 lies on a rank, and there is"),
        (replace(program, hosts=(first, Host(0, 1, 2))), "stage 1 of replica 0 lies on rank 2 of 2"),
        (replace(program, order=program.order[:1]), "the order has 1 rows, and there are 2 ranks"),
    ]
    for broken, message in cases:
        assert program_problems(broken)[0].message.startswith(message)


def test_a_sequence_goes_one_way() -> None:
    """A sequence that goes through both replicas is refused."""
    program = PROGRAMS["chimera"](1, 1, 2, 1)
    row = [replace(op, sequence=0) for op in program.order[0]]
    (found,) = program_problems(_with_row(program, 0, row))
    assert "takes sequence 0 through replica" in found.message
