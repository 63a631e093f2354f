"""A tensor as a rectangle, cut as it lies over the ranks: while computing, and at rest."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from ...fold import Known
from ...plan.ir import Plan, Tensor, chunk
from ..plan import grouped
from ..tables import shape_text
from .canvas import MONO, SANS, Picture, box, cut, words
from .markup import Markup, joined, tag
from .shown import shown

#: Parts that are drawn along a dim, and at rest inside each of them.
MOST_PARTS, MOST_RESTS = 8, 4
#: The same where both stand one below the other.
_FEW = 4
#: Ranks that a part names.
_MOST_NAMED = 12
_WIDE, _TALL, _TOP, _LEFT = 260.0, 150.0, 20, 8


@dataclass(frozen=True, kw_only=True)
class Group:
    """Tensors that lie alike, such as those of equal layers; `names` are folded."""

    names: tuple[str, ...]
    tensors: tuple[Tensor, ...]

    @property
    def first(self) -> Tensor:
        """One of them."""
        return self.tensors[0]

    @property
    def text(self) -> str:
        """All names."""
        return ", ".join(self.names)


def groups(plan: Plan) -> list[Group]:
    """All tensors of a plan, those that are alike as one, as `plan` prints them."""

    def alike(tensor: Tensor) -> Hashable:
        return tensor.shape, tensor.dims, tensor.stored, tensor.grad, tensor.kind

    known = Known([tensor.fqn for tensor in plan.tensors])
    return [
        Group(names=known.fold([t.fqn for t in found]), tensors=tuple(found)) for found in grouped(plan.tensors, alike)
    ]


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A part of a tensor along one dim: where, how long, and on which coordinates."""

    first: int
    size: int
    places: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class _Cut:
    """A computing part along one dim: its number, its parts at rest that are drawn, and whether that is all."""

    number: int
    rests: tuple[_Part, ...]
    whole: bool


def tensor_picture(plan: Plan, group: Group, number: int) -> Picture:
    """The parts of dim 0 from top to bottom, of dim 1 from left to right; more dims are whole or told in words."""
    tensor = group.first
    both = bool(tensor.dims) and plan.mesh.product(tensor.dims[0].axes) > 1 and plan.mesh.product(tensor.stored) > 1
    wide, tall = _WIDE if len(tensor.dims) > 1 else 64.0, _TALL + 40 * both
    body = [
        part
        for (row, y, high), (column, x, long) in product(_laid(plan, tensor, 0, tall), _laid(plan, tensor, 1, wide))
        for part in _shard(plan, tensor, row, column, (_LEFT + x, _TOP + y, long, high))
    ]
    label = " x ".join(f"{dim.text} {dim.size}" for dim in tensor.dims) or "scalar"
    width = max(_LEFT + wide + 12, min(300.0, SANS * len(label) + 16))
    return Picture(
        name=f"tensor-{number:02d}",
        title=f"{group.text}: {shape_text(tensor.shape)}",
        width=width,
        height=_TOP + tall + 12,
        body=joined([words(_LEFT, 12, cut(label, width - 8), "quiet"), *body]),
    )


def _laid(plan: Plan, tensor: Tensor, index: int, extent: float) -> Iterator[tuple[_Cut, float, float]]:
    """(a computing part, where, how long) of those along a dim that are drawn."""
    axes = tensor.dims[index].axes if index < len(tensor.dims) else ()
    count = plan.mesh.product(axes)
    stored = plan.mesh.product(tensor.stored) > 1 and index == 0
    places = shown(count, _FEW if stored else MOST_PARTS)
    gap = 14.0 if len(places) < count else 0.0
    each = (extent - gap) / len(places)
    for order, place in enumerate(places):
        at = each * order + (gap if gap and order == len(places) - 1 else 0)
        yield _cut(plan, tensor, index, place), at, each


def _cut(plan: Plan, tensor: Tensor, index: int, place: int) -> _Cut:
    if index >= len(tensor.dims):
        return _Cut(number=0, rests=(_Part(first=0, size=1, places={}),), whole=True)
    dim = tensor.dims[index]
    places = _unrolled(plan, dim.axes, place)
    first, units = 0, dim.units
    for axis in dim.axes:
        parts = plan.mesh.size(axis)
        first += min(units, -(-units // parts) * places[axis])
        units = chunk(units, parts, places[axis])
    each = dim.size // dim.units
    stored = tensor.stored if index == 0 else ()
    return _rests(plan, place, _Part(first=first * each, size=units * each, places=places), stored)


def _rests(plan: Plan, number: int, part: _Part, stored: tuple[str, ...]) -> _Cut:
    """Dim 0 is cut at rest into parts of ceil(n / k) rows, as torch's FSDP does."""
    count = plan.mesh.product(stored)
    computing = plan.mesh.product(part.places)
    places = shown(count, MOST_RESTS if computing < _FEW else _FEW - 1)
    step = -(-part.size // count)
    rests = tuple(
        _Part(
            first=part.first + min(part.size, step * place),
            size=chunk(part.size, count, place),
            places={**part.places, **_unrolled(plan, stored, place)},
        )
        for place in places
    )
    return _Cut(number=number, rests=rests, whole=len(places) == count)


def _unrolled(plan: Plan, axes: tuple[str, ...], place: int) -> dict[str, int]:
    """Coordinates, outer axis first, of one place along several axes."""
    found: dict[str, int] = {}
    for axis in reversed(axes):
        place, found[axis] = divmod(place, plan.mesh.size(axis))
    return found


def _shard(
    plan: Plan, tensor: Tensor, row: _Cut, column: _Cut, at: tuple[float, float, float, float]
) -> Iterator[Markup]:
    """One computing part: its parts at rest as stripes, in a frame."""
    x, y, wide, high = at
    hue = f"s{(row.number + column.number) % 8}"
    gap = 0.0 if row.whole else 5.0
    each = (high - gap) / len(row.rests)
    for order, rest in enumerate(row.rests):
        where = {**rest.places, **column.rests[0].places}
        top = y + each * order + (gap if order and order == len(row.rests) - 1 else 0)
        tint = "faint" if order % 2 else "half"
        yield tag(
            "g",
            tag("title", _told(plan, tensor, rest, column.rests[0], where)),
            box(x, top, wide, each, f"{hue} {tint} thin"),
            *_name(plan, tensor, where, (x, top, wide, each)),
            class_="shard",
            data_c=" ".join(f"{plan.mesh.names.index(axis)}:{c}" for axis, c in where.items()),
        )
    yield box(x, y, wide, high, "cut")


def _name(plan: Plan, tensor: Tensor, where: dict[str, int], at: tuple[float, float, float, float]) -> Iterator[Markup]:
    """The ranks that have a part, where there is room."""
    x, y, wide, high = at
    ranks = _ranks(plan, tensor, where)
    long = " ".join(map(str, ranks)) + (" \u2026" if len(ranks) < _count(plan, tensor, where) else "")
    more = _count(plan, tensor, where) - 1
    short = (f"{ranks[0]} and {more} more", f"{ranks[0]} +{more}", f"{ranks[0]} \u2026", str(ranks[0]))
    text = next((each for each in (long, *short) if MONO * len(each) < wide - 4), None)
    if text is not None and high >= 11:
        yield words(x + wide / 2, y + high / 2 + 4, text, "mid mono" if high >= 15 else "mid mono small")


def _held(plan: Plan, tensor: Tensor) -> dict[str, Sequence[int]]:
    """Axis -> the coordinates that hold a tensor at all: a stage's ranks."""
    stage = plan.stage_of.get(tensor.fqn)
    return {
        axis: stage.coordinates if stage is not None and axis in plan.axes_of("pipeline") else range(size)
        for axis, size in ((axis.name, axis.size) for axis in plan.mesh.axes)
    }


def _count(plan: Plan, tensor: Tensor, where: dict[str, int]) -> int:
    found = 1
    for axis, places in _held(plan, tensor).items():
        found *= 1 if axis in where else len(places)
    return found


def _ranks(plan: Plan, tensor: Tensor, where: dict[str, int]) -> list[int]:
    """The first ranks that have the part at some coordinates."""
    held = {axis: (where[axis],) if axis in where else places for axis, places in _held(plan, tensor).items()}
    found: list[int] = []
    for places in product(*(_first(each) for each in held.values())):
        found.append(plan.mesh.rank(dict(zip(held, places, strict=True))))
        if len(found) == _MOST_NAMED:
            break
    return found


def _first(places: Sequence[int]) -> Sequence[int]:
    """The first of them; of a mesh there may be any number."""
    return places[:_MOST_NAMED] if isinstance(places, range) else sorted(places)[:_MOST_NAMED]


def _told(plan: Plan, tensor: Tensor, row: _Part, column: _Part, where: dict[str, int]) -> str:
    """`[0:64, 64:128] on ranks 1 3; dp 0, tp 1`."""
    parts = [f"{row.first}:{row.first + row.size}"] if tensor.dims else []
    parts += [f"{column.first}:{column.first + column.size}"] if len(tensor.dims) > 1 else []
    ranks, count = _ranks(plan, tensor, where), _count(plan, tensor, where)
    more = f" and {count - len(ranks)} more" if count > len(ranks) else ""
    at = ", ".join(f"{axis} {place}" for axis, place in where.items()) or "whole"
    return f"[{', '.join(parts)}] on rank{'s' * (count > 1)} {' '.join(map(str, ranks))}{more}; {at}"
