"""Whether ranks that take their operations in order come to the end, and who waits for whom where they do not.

What a directed pair of ranks sends keeps its order, and is received into so many buffers a pair: with
one, a message that is needed before one that was sent earlier never comes. Sends themselves are not
waited for; `lower` has the order in which even waiting for them is safe.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from .ir import Op, OpKind, Problem, Program


@dataclass
class _Run:
    """All ranks, as far as they have come.

    Attributes:
        at: for each rank the place of its next operation.
        sent: for what each operation gave, its number among the messages of its pair of ranks; -1
            before, and a message within one rank has none.
        made, taken: messages of each pair, by sender x ranks + receiver.
    """

    program: Program
    hosts: list[int]
    at: list[int]
    forward: list[int]
    backward: list[int]
    made: list[int]
    taken: list[int]


#: In `forward` and `backward`: not done; done, and handed over within a rank.
_NOT, _HERE = -1, 0


def deadlock(program: Program, *, buffers: int | None = 1) -> list[Problem]:
    """The cycle of ranks that wait for each other, or nothing; with None messages come as they are needed."""
    most = _size(program) if buffers is None else buffers
    run = _started(program)
    queue, queued = deque(range(program.ranks)), [True] * program.ranks
    while queue:
        rank = queue.popleft()
        queued[rank] = False
        for other in _go_on(run, rank, most):
            if not queued[other]:
                queued[other] = True
                queue.append(other)
    stuck = [rank for rank, row in enumerate(program.order) if run.at[rank] < len(row)]
    return [_told(run, stuck[0])] if stuck else []


def _started(program: Program) -> _Run:
    size = _size(program)
    hosts = [program.host[r, k] for r in range(program.replicas) for k in range(program.stages)]
    pairs = program.ranks * program.ranks
    return _Run(program, hosts, [0] * program.ranks, [_NOT] * size, [_NOT] * size, [0] * pairs, [0] * pairs)


def _size(program: Program) -> int:
    return program.sequences * program.subsequences * program.stages


def _go_on(run: _Run, rank: int, most: int) -> set[int]:
    """Takes a rank's operations as far as it can; gives the ranks that were sent something."""
    program, row = run.program, run.program.order[rank]
    stages, ranks, parts = program.stages, program.ranks, program.subsequences
    woken: set[int] = set()
    for at in range(run.at[rank], len(row)):
        op = row[at]
        kind = op.kind
        if kind == "W":
            continue
        index = (op.sequence * parts + op.subsequence) * stages + op.stage
        step, done = (1, run.forward) if kind == "F" else (-1, run.backward)
        near, base = op.stage - step, op.replica * stages
        if 0 <= near < stages:
            came, other = done[index - step], run.hosts[base + near]
            line = other * ranks + rank
            if came == _NOT or (other != rank and came - run.taken[line] >= most):
                break
            run.taken[line] += other != rank
        done[index] = _HERE
        far = op.stage + step
        if 0 <= far < stages and (other := run.hosts[base + far]) != rank:
            line = rank * ranks + other
            done[index] = run.made[line]
            run.made[line] += 1
            woken.add(other)
    else:
        run.at[rank] = len(row)
        return woken
    run.at[rank] = at
    return woken


def _told(run: _Run, first: int) -> Problem:
    """The cycle that the waits of a rank lead into."""
    path: list[tuple[int, str, tuple[Op, ...]]] = []
    seen: dict[int, int] = {}
    rank = first
    while rank not in seen:
        seen[rank] = len(path)
        text, ops, other = _wait(run, rank)
        path.append((rank, text, ops))
        rank = other
    cycle = path[seen[rank] :]
    told = "; ".join(text for _, text, _ in cycle)
    named = tuple(op for _, _, ops in cycle for op in ops)
    return Problem(text=f"no rank can go on: {told}", ops=named, row=cycle[0][0], cell=run.at[cycle[0][0]])


def _wait(run: _Run, rank: int) -> tuple[str, tuple[Op, ...], int]:
    """What keeps a rank from its next operation, and the rank that would have to give it."""
    program = run.program
    op = program.order[rank][run.at[rank]]
    forward = op.kind == "F"
    near = op.stage - 1 if forward else op.stage + 1
    other = program.host[op.replica, near]
    place = (op.sequence * program.subsequences + op.subsequence) * program.stages + near
    came = (run.forward if forward else run.backward)[place]
    kind: OpKind = "F" if forward else _backward_kind(program, op, near)
    needed = Op(kind, op.replica, op.sequence, op.subsequence, near)
    if came == _NOT:
        return f"rank {rank} waits at {{}} for {{}} of rank {other}", (op, needed), other
    before = _at_head(program, other, rank, run.taken[other * program.ranks + rank])
    text = f"rank {rank} waits at {{}} for {{}} of rank {other}, which sent {{}} before it"
    return text, (op, needed, before), rank


def _backward_kind(program: Program, op: Op, stage: int) -> OpKind:
    """Whether the stage that gives a gradient gives it with a whole backward or with its first half."""
    half = Op("I", op.replica, op.sequence, op.subsequence, stage)
    return "I" if half in program.order[program.host[op.replica, stage]] else "B"


def _at_head(program: Program, sender: int, receiver: int, number: int) -> Op:
    """The operation whose message is the `number`-th from one rank to another."""
    for op in program.order[sender]:
        stage = op.stage + 1 if op.kind == "F" else op.stage - 1
        if op.kind != "W" and 0 <= stage < program.stages and program.host[op.replica, stage] == receiver:
            if number == 0:
                return op
            number -= 1
    raise AssertionError((sender, receiver, number))
