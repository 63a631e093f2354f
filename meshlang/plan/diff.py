"""What changes between two plans of one model, and how many bytes of state have to move."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..fold import fold
from ..language.spec import DTYPE_BYTES
from .cost import memory
from .ir import Collective, Option, PipelineUse, Plan, Tensor
from .promises import said

#: A rectangle of a tensor: for each dim the first row and the row past the last.
Block = tuple[tuple[int, int], ...]


#: Ranks whose parts are compared one by one.
MOST_RANKS = 2**18


class ManyRanksError(Exception):
    """Two plans that differ over more ranks than are walked over."""


@dataclass(frozen=True, kw_only=True)
class Changed:
    """A tensor that two plans keep in different parts.

    moved: bytes of state (parameter and two moments) that its ranks must fetch, over all ranks;
    most: of these the most that one rank fetches.
    """

    fqn: str
    before: str
    after: str
    moved: int
    most: int


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Everything that differs; empty tuples where nothing does."""

    mesh: tuple[str, ...]
    tensors: tuple[Changed, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    reshaped: tuple[str, ...]
    collectives: tuple[str, ...]
    state: tuple[str, ...]
    memory: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """True for two plans that are alike."""
        names = (self.only_before, self.only_after, self.reshaped)
        return not any((self.mesh, self.tensors, *names, self.collectives, self.state, self.memory))


def diff(before: Plan, after: Plan) -> Difference:
    """What is different in `after`.

    Raises:
        ManyRanksError: tensors lie otherwise over more than `MOST_RANKS` ranks.
    """
    old, new = before.by_fqn, after.by_fqn
    return Difference(
        mesh=tuple(_mesh(before, after)),
        tensors=tuple(_tensors(before, after)),
        only_before=tuple(fqn for fqn in old if fqn not in new),
        only_after=tuple(fqn for fqn in new if fqn not in old),
        reshaped=tuple(fqn for fqn in new if fqn in old and old[fqn].shape != new[fqn].shape),
        collectives=tuple(_collectives(before, after)),
        state=tuple(_state(before, after)),
        memory=tuple(_memory(before, after)),
    )


def _mesh(before: Plan, after: Plan) -> Iterator[str]:
    if before.model != after.model:
        yield f"model {before.model} -> {after.model}"
    if before.ranks != after.ranks:
        yield f"ranks {before.ranks} -> {after.ranks}"
    names = dict.fromkeys((*before.mesh.names, *after.mesh.names))
    for name in names:
        if before.mesh.size(name) != after.mesh.size(name):
            yield f"{name} {before.mesh.size(name)} -> {after.mesh.size(name)}"
    if before.sizes != after.sizes:
        yield f"sizes {_sizes(before)} -> {_sizes(after)}"
    if before.recompute != after.recompute:
        yield f"recomputed {_modules(before)} -> {_modules(after)}"
    for key in ("state", "compute", "reduce"):
        yield from _changed(f"{key} type", getattr(before.precision, key), getattr(after.precision, key))
    yield from _strategies(before, after)
    yield from _pipeline(before.pipeline, after.pipeline)
    if before.block != after.block and _blocks(before) != _blocks(after):
        yield f"blocks {_blocks(before)} -> {_blocks(after)}"


def _sizes(plan: Plan) -> str:
    passes = plan.sizes.accumulation
    return f"{plan.sizes.batch} x {plan.sizes.seq}" + (f" in {passes} passes" if passes > 1 else "")


def _changed(name: str, old: object, new: object) -> Iterator[str]:
    if old != new:
        yield f"{name} {_word(old)} -> {_word(new)}"


def _word(value: object) -> str:
    if value is None:
        return "unset"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _strategies(before: Plan, after: Plan) -> Iterator[str]:
    """Strategies by name and axis; of one that both plans have, the fields that differ."""
    old, new = ({f"{use.name} over {use.axis}": dict(use.options) for use in p.strategies} for p in (before, after))
    if list(old) != list(new):
        yield f"strategies {', '.join(old) or 'none'} -> {', '.join(new) or 'none'}"
    for name in old:
        yield from _options(name, old[name], new.get(name, old[name]))


def _options(name: str, old: dict[str, Option], new: dict[str, Option]) -> Iterator[str]:
    for key in dict.fromkeys((*old, *new)):
        yield from _changed(f"{name}: {key}", old.get(key), new.get(key))


def _pipeline(old: PipelineUse | None, new: PipelineUse | None) -> Iterator[str]:
    """The schedule and its numbers; of one that both plans have, its own keys and its order, too."""
    names = ["none" if use is None else use.schedule for use in (old, new)]
    yield from _changed("pipeline", *names)
    if old is None or new is None:
        return
    for key in ("microbatches", "subsequences", "chunks", "split"):
        yield from _changed(key, getattr(old, key), getattr(new, key))
    if len({*old.lengths}) > 1 or len({*new.lengths}) > 1:
        yield from _changed("lengths", old.lengths, new.lengths)
    if old.schedule != new.schedule:
        return
    found = list(_options(old.schedule, dict(old.options), dict(new.options)))
    yield from found
    if not found and _numbers(old) == _numbers(new) and (old.order, old.program) != (new.order, new.program):
        yield f"{old.schedule}: another order"


def _numbers(use: PipelineUse) -> tuple[object, ...]:
    """All that makes another order under one schedule and its keys; the rest is the file that it comes from."""
    ranks = len(use.order) if use.program is None else use.program.ranks
    return ranks, use.microbatches, use.subsequences, use.chunks


def _blocks(plan: Plan) -> str:
    if plan.block is None:
        return "none"
    streams = "one clean stream" if plan.block.shared else f"{plan.block.views} clean streams"
    return f"of {plan.block.block_size} tokens, {streams} over {plan.block.context} of {plan.block.size} ranks"


def _modules(plan: Plan) -> str:
    known = dict.fromkeys(edge.module for edge in plan.edges)
    return ", ".join(fold(plan.recompute, list(known))) or "nothing"


def _tensors(before: Plan, after: Plan) -> Iterator[Changed]:
    known: dict[tuple[object, ...], tuple[int, int]] = {}
    for fqn, new in after.by_fqn.items():
        old = before.by_fqn.get(fqn)
        if old is None or fqn != new.fqn or new.kind != "parameter" or old.shape != new.shape:
            continue
        key = (*_parts(old, before), *_parts(new, after))
        if key not in known:
            known[key] = _moved(old, new, before, after)
        moved, most = known[key]
        texts = _text(old, before), _text(new, after)
        if moved or texts[0] != texts[1]:
            yield Changed(fqn=fqn, before=texts[0], after=texts[1], moved=moved, most=most)


def _parts(tensor: Tensor, plan: Plan) -> tuple[object, ...]:
    """All that decides which rank keeps which part of a tensor."""
    place = plan.stage_of[tensor.fqn].coordinates if plan.stages else None
    return tensor.shape, tuple(dim.axes for dim in tensor.dims), tensor.stored, place


def _text(tensor: Tensor, plan: Plan) -> str:
    stage = [f"stage {plan.stage_of[tensor.fqn].index}"] if plan.stages else []
    axes = [axis for axis in plan.mesh.names if plan.mesh.size(axis) > 1 and plan.role(axis) != "pipeline"]
    return ", ".join([*stage, *(f"{axis} {said(tensor, axis)}" for axis in axes)]) or "one rank"


def block(tensor: Tensor, plan: Plan, rank: int) -> Block:
    """The rectangle of a tensor that a rank keeps at rest."""
    coordinate = plan.mesh.coordinate(rank)
    ranges = []
    for index, dim in enumerate(tensor.dims):
        row = dim.size // dim.units
        start, stop = 0, dim.units
        for axis in dim.axes:
            start, stop = _part(start, stop, plan.mesh.size(axis), coordinate[axis])
        start, stop = start * row, stop * row
        if index == 0 and tensor.stored:
            position = 0
            for axis in tensor.stored:
                position = position * plan.mesh.size(axis) + coordinate[axis]
            start, stop = _part(start, stop, plan.mesh.product(tensor.stored), position)
        ranges.append((start, stop))
    return tuple(ranges)


def _part(start: int, stop: int, parts: int, index: int) -> tuple[int, int]:
    step = -(-(stop - start) // parts)
    return min(stop, start + step * index), min(stop, start + step * (index + 1))


def _moved(old: Tensor, new: Tensor, before: Plan, after: Plan) -> tuple[int, int]:
    """(bytes over all ranks, most of one rank) of the new parts that are not in the rank's old part."""
    if before.mesh == after.mesh and _parts(old, before) == _parts(new, after):
        return 0, 0
    if after.ranks > MOST_RANKS:
        raise ManyRanksError(f"the bytes that move are counted rank by rank, for {MOST_RANKS:,} ranks at most")
    width = 3 * DTYPE_BYTES[after.precision.state]
    total = most = 0
    for rank in range(after.ranks):
        have = block(old, before, rank) if rank < before.ranks and _holds(old, before, rank) else None
        if not _holds(new, after, rank):
            continue
        want = block(new, after, rank)
        fetch = (_volume(want) - (_overlap(have, want) if have is not None else 0)) * width
        total, most = total + fetch, max(most, fetch)
    return total, most


def _holds(tensor: Tensor, plan: Plan, rank: int) -> bool:
    return plan.holds(tensor, plan.mesh.coordinate(rank))


def _volume(ranges: Block) -> int:
    size = 1
    for start, stop in ranges:
        size *= max(0, stop - start)
    return size


def _overlap(one: Block, other: Block) -> int:
    return _volume(tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True)))


def _collectives(before: Plan, after: Plan) -> Iterator[str]:
    def table(plan: Plan) -> dict[tuple[str, ...], tuple[int, int | None]]:
        return {(c.pass_, c.kind, c.axis, _where(c), str(i)): (c.count, c.bytes) for i, c in _numbered(plan)}

    old, new = table(before), table(after)
    for key in dict.fromkeys((*old, *new)):
        if old.get(key) != new.get(key):
            pass_, kind, axis, where, _ = key
            yield f"{pass_} {kind} over {axis} at {where}: {_calls(old.get(key))} -> {_calls(new.get(key))}"


def _numbered(plan: Plan) -> Iterator[tuple[int, Collective]]:
    seen: dict[tuple[str, ...], int] = {}
    for call in plan.collectives:
        key = (call.pass_, call.kind, call.axis, _where(call))
        seen[key] = seen.get(key, -1) + 1
        yield seen[key], call


def _where(call: Collective) -> str:
    replica = "" if call.replica is None else f", replica {call.replica}"
    return call.where if call.stage is None else f"{call.where} in stage {call.stage}{replica}"


def _calls(entry: tuple[int, int | None] | None) -> str:
    if entry is None:
        return "none"
    count, size = entry
    return f"{count} of {'?' if size is None else size} bytes"


def _state(before: Plan, after: Plan) -> Iterator[str]:
    assert before.state_bytes is not None
    assert after.state_bytes is not None
    for key in ("parameters", "gradients", "optimizer", "total"):
        old, new = getattr(before.state_bytes, key), getattr(after.state_bytes, key)
        if old != new:
            yield f"{key} {old} -> {new} bytes on the fullest rank"


def _memory(before: Plan, after: Plan) -> Iterator[str]:
    """What is there at once beside the state, and all of it; each plan's fullest rank may be another."""
    old, new = memory(before), memory(after)
    words = {"gathered": "weights gathered", "unsummed": "gradients not yet summed", "activations": "activations"}
    for key, text in {**words, "total": "total"}.items():
        was, now = getattr(old, key), getattr(new, key)
        if was != now:
            yield f"{text} {_bytes(was)} -> {_bytes(now)} on the fullest rank"


def _bytes(size: int | None) -> str:
    return "not known" if size is None else f"{size} bytes"
