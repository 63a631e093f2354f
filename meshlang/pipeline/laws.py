"""Laws of a Program: everything once, where it belongs, in an order that keys, values and gradients need.

A subsequence attends to those before it, so on each stage forwards of one sequence go first to
last; its gradients of keys and values come from those behind it, so backwards go last to first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .check import Problem
from .deadlock import deadlock
from .ir import Op, Program


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
        yield Problem(message=f"the order has {len(program.order)} rows, and there are {program.ranks} ranks")
        return
    count = Counter((host.replica, host.stage) for host in program.hosts)
    for replica in range(program.replicas):
        for stage in range(program.stages):
            times = count.pop((replica, stage), 0)
            if times != 1:
                where = "on no rank" if times == 0 else f"on {times} ranks"
                yield Problem(message=f"{_stage(replica, stage)} lies {where}")
                return
    for replica, stage in count:
        yield Problem(message=f"{_stage(replica, stage)} lies on a rank, and there is none")
        return
    for host in program.hosts:
        if not 0 <= host.rank < program.ranks:
            yield Problem(message=f"{_stage(host.replica, host.stage)} lies on rank {host.rank} of {program.ranks}")
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
            message = f"{op} is of {_stage(op.replica, op.stage)}, and there is none"
        elif at != rank:
            message = f"{op} stands on rank {rank}, and {_stage(op.replica, op.stage)} lies on rank {at}"
        else:
            message = f"{op} is of sequence {op.sequence}, subsequence {op.subsequence}, of {sizes[0]} x {sizes[1]}"
        yield Problem(message=message, row=rank, cell=place)
        return


def _one_way(program: Program) -> Iterator[Problem]:
    """A sequence goes through one replica."""
    way: dict[int, int] = {}
    for rank, place, op in program.ops():
        if way.setdefault(op.sequence, op.replica) != op.replica:
            message = f"{op} takes sequence {op.sequence} through replica {op.replica} and {way[op.sequence]}"
            yield Problem(message=message, row=rank, cell=place)
            return


def _once(program: Program) -> Iterator[Problem]:
    """Each subsequence goes through each stage forward once, and back once: whole, or in two halves."""
    bit = {"F": 1, "B": 2, "I": 4, "W": 8}
    have = [0] * (program.sequences * program.subsequences * program.stages)
    for rank, place, op in program.ops():
        index, mine = _index(op, program), bit[op.kind]
        if have[index] & mine:
            yield Problem(message=f"{op} is there more than once", row=rank, cell=place)
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
    lacks = "F" if not bits & 1 else "W" if bits & 4 else "I" if bits & 8 else "B"
    op = Op(lacks, replica, sequence, subsequence, stage)
    if bits & 2 and bits & 12:
        return Problem(message=f"{Op('B', replica, sequence, subsequence, stage)} is there whole and in halves")
    return Problem(message=f"{op} is missing", row=program.host[replica, stage])


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
            yield Problem(message=f"{op} stands before {lacks[0]}: it has need {lacks[1]}", row=rank, cell=place)
            return


def _beside(op: Op, kind: str, step: int) -> Op:
    return Op(kind, op.replica, op.sequence, op.subsequence + step, op.stage)  # type: ignore[arg-type]
