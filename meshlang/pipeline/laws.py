"""Laws of a Program: everything once, where it belongs, in an order that keys, values and gradients need.

A subsequence attends to those before it, so on each stage forwards of one sequence go first to
last; its gradients of keys and values come from those behind it, so backwards go last to first.

An order of actions in torch's notation keeps the same laws, as the Program that it is. Before that, each
of its stages has a place, and they lie in one of the two ways that torchtitan knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from ..diagnostics import counted
from .actions import Action
from .deadlock import deadlock
from .ir import Host, Op, Problem, Program

#: Rows of cells; a cell holds the actions that a rank takes at once, one after the other.
Cells = Sequence[Sequence[tuple[Action, ...]]]


def program_problems(program: Program, *, buffers: int | None = 1) -> list[Problem]:
    """What stands against a Program; each law is asked only where those before it hold.

    Args:
        buffers: of each directed pair of ranks, filled in the order in which it sends; with one,
            messages are taken in that order. None for a runtime that receives anything at any time.
    """
    for law in (_hosts, _in_range, _one_way, _once, _own_order):
        found = list(law(program))
        if found:
            return found
    return deadlock(program, buffers=buffers)


def _hosts(program: Program) -> Iterator[Problem]:
    """Each stage of each replica lies on one rank, and there is a row for each rank."""
    if len(program.order) != program.ranks:
        yield Problem(text=f"the order has {len(program.order)} rows, and there are {program.ranks} ranks")
        return
    count = Counter((host.replica, host.stage) for host in program.hosts)
    for replica in range(program.replicas):
        for stage in range(program.stages):
            times = count.pop((replica, stage), 0)
            if times != 1:
                where = "on no rank" if times == 0 else f"on {times} ranks"
                yield Problem(text=f"{_stage(replica, stage)} lies {where}")
                return
    for replica, stage in count:
        yield Problem(text=f"{_stage(replica, stage)} lies on a rank, and there is none")
        return
    for host in program.hosts:
        if not 0 <= host.rank < program.ranks:
            yield Problem(text=f"{_stage(host.replica, host.stage)} lies on rank {host.rank} of {program.ranks}")
            return


def _stage(replica: int, stage: int) -> str:
    return f"stage {stage} of replica {replica}"


def _in_range(program: Program) -> Iterator[Problem]:
    """An operation is of something that there is, and stands where its stage lies."""
    host, sizes = program.host, (program.sequences, program.subsequences)
    for rank, place, op in program.ops():
        at = host.get((op.replica, op.stage))
        if at == rank and 0 <= op.sequence < sizes[0] and 0 <= op.subsequence < sizes[1]:
            continue
        if at is None:
            message = f"{{}} is of {_stage(op.replica, op.stage)}, and there is none"
        elif at != rank:
            message = f"{{}} stands on rank {rank}, and {_stage(op.replica, op.stage)} lies on rank {at}"
        elif sizes[1] == 1 and op.subsequence == 0:
            message = f"{{}} is of microbatch {op.sequence}, and there are {sizes[0]}"
        else:
            message = f"{{}} is of sequence {op.sequence}, subsequence {op.subsequence}, of {sizes[0]} x {sizes[1]}"
        yield Problem(text=message, ops=(op,), row=rank, cell=place)
        return


def _one_way(program: Program) -> Iterator[Problem]:
    """A sequence goes through one replica."""
    way: dict[int, int] = {}
    for rank, place, op in program.ops():
        if way.setdefault(op.sequence, op.replica) != op.replica:
            message = f"{{}} takes sequence {op.sequence} through replica {op.replica} and {way[op.sequence]}"
            yield Problem(text=message, ops=(op,), row=rank, cell=place)
            return


def _once(program: Program) -> Iterator[Problem]:
    """Each subsequence goes through each stage forward once, and back once: whole, or in two halves."""
    bit = {"F": 1, "B": 2, "I": 4, "W": 8}
    have = [0] * (program.sequences * program.subsequences * program.stages)
    for rank, place, op in program.ops():
        index, mine = _index(op, program), bit[op.kind]
        if have[index] & mine:
            yield Problem(text="{} is there more than once", ops=(op,), row=rank, cell=place)
            return
        have[index] |= mine
    for index, bits in enumerate(have):
        if bits not in (3, 13):
            yield _incomplete(index, bits, program)
            return


def _incomplete(index: int, bits: int, program: Program) -> Problem:
    x, stage = divmod(index, program.stages)
    sequence, subsequence = divmod(x, program.subsequences)
    replica = program.replica_of.get(sequence, 0)
    both = bits & 2 and bits & 12
    lacks = "B" if both else "F" if not bits & 1 else "W" if bits & 4 else "I" if bits & 8 else "B"
    text = "{} is there whole and in halves" if both else "{} is missing"
    op = Op(lacks, replica, sequence, subsequence, stage)
    return Problem(text=text, ops=(op,), row=program.host[replica, stage])


def _index(op: Op, program: Program) -> int:
    return (op.sequence * program.subsequences + op.subsequence) * program.stages + op.stage


def _own_order(program: Program) -> Iterator[Problem]:
    """On its stage an operation finds done what it needs: its forward, its halves, its neighbours in the sequence."""
    stages, last = program.stages, program.subsequences - 1
    size = program.sequences * program.subsequences * stages
    forward, backward = bytearray(size), bytearray(size)
    for rank, place, op in program.ops():
        index, lacks = _index(op, program), None
        if op.kind == "F":
            if op.subsequence and not forward[index - stages]:
                lacks = _beside(op, "F", -1), "of the keys before it"
            forward[index] = 1
        elif op.kind == "W":
            lacks = None if backward[index] else (_beside(op, "I", 0), "of its first half")
        else:
            if not forward[index]:
                lacks = _beside(op, "F", 0), "of its forward"
            elif op.subsequence < last and not backward[index + stages]:
                lacks = _beside(op, op.kind, 1), "of the gradients of keys behind it"
            backward[index] = 1
        if lacks is not None:
            text = f"{{}} stands before {{}}: it has need {lacks[1]}"
            yield Problem(text=text, ops=(op, lacks[0]), row=rank, cell=place)
            return


def _beside(op: Op, kind: str, step: int) -> Op:
    return Op(kind, op.replica, op.sequence, op.subsequence + step, op.stage)  # pyright: ignore[reportArgumentType]


# Orders of actions


def order_problems(cells: Cells, *, ranks: int, microbatches: int) -> list[Problem]:
    """What stands against an order; actions are told as it writes them, places are those of its cells."""
    if len(cells) != ranks:
        text = f"the order has {counted(len(cells), 'row')}, and the axis has {counted(ranks, 'rank')}"
        return [Problem(text=text)]
    for law in (_one_place, _all_stages):
        found = list(law(cells))
        if found:
            return found
    places = stages_of(cells)
    program = Program(
        ranks=ranks,
        stages=len(places),
        replicas=1,
        sequences=microbatches,
        subsequences=1,
        hosts=tuple(Host(0, stage, row) for stage, row in places.items()),
        order=tuple(tuple(Op(a.kind, 0, a.microbatch, 0, a.stage) for cell in row for a in cell) for row in cells),
    )
    return [_in_cells(problem, cells) for problem in program_problems(program, buffers=None)]


def _in_cells(problem: Problem, cells: Cells) -> Problem:
    """A problem of the Program that an order is, at the cell that the operation stands in."""
    cell = problem.cell
    if problem.row is not None and cell is not None:
        cell = [index for index, each in enumerate(cells[problem.row]) for _ in each][cell]
    said = problem.told(lambda op: f"{op.stage}{op.kind}{op.sequence}")
    return replace(problem, text=said, ops=(), cell=cell)


def stages_of(cells: Cells) -> dict[int, int]:
    """Stage -> the first row that names it."""
    found: dict[int, int] = {}
    for index, row in enumerate(cells):
        for cell in row:
            for action in cell:
                found.setdefault(action.stage, index)
    return found


def way(stage: int, ranks: int, style: Literal["loop", "v"]) -> int:
    """The rank of a stage: stages loop over the ranks, or go to the last rank and back."""
    there, place = divmod(stage, ranks)
    return ranks - 1 - place if style == "v" and there % 2 else place


def style_of(places: dict[int, int], ranks: int) -> Literal["loop", "v"] | None:
    """How the stages lie on the ranks; None for any other way."""
    if all(way(stage, ranks, "loop") == row for stage, row in places.items()):
        return "loop"
    if len(places) == 2 * ranks and all(way(stage, ranks, "v") == row for stage, row in places.items()):
        return "v"
    return None


def _one_place(cells: Cells) -> Iterator[Problem]:
    """A stage lies on one rank."""
    owner = stages_of(cells)
    for index, row in enumerate(cells):
        for place, cell in enumerate(row):
            for action in cell:
                if owner[action.stage] != index:
                    message = f"stage {action.stage} is on rank {owner[action.stage]} and on rank {index}"
                    yield Problem(text=message, row=index, cell=place)
                    return


def _all_stages(cells: Cells) -> Iterator[Problem]:
    """Each rank has as many stages, and none is left out; torchtitan knows two ways to lay them out."""
    places = stages_of(cells)
    ranks, count = len(cells), len(places)
    first = next(stage for stage in range(count + 1) if stage not in places)
    if first < count or not count:
        yield Problem(text=f"stage {first} has no action")
    elif count % ranks:
        yield Problem(text=f"{counted(count, 'stage', does=True)} not divide over {counted(ranks, 'rank')}")
    elif style_of(places, ranks) is None:
        stage = next(s for s in range(count) if places[s] != way(s, ranks, "loop"))
        where = f"stage {stage} is on rank {places[stage]}"
        yield Problem(text=f"{where}: stages loop over the ranks, or are two on each in the shape of a V")
