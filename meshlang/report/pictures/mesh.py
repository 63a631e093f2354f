"""The mesh as a grid: one cell a rank, axes laid across and down in turn, a frame around each node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ...diagnostics import counted
from ...mesh import Mesh
from .canvas import SANS, Picture, box, cut, words
from .markup import Markup, joined, tag
from .shown import fitted

#: Cells that are drawn in a row, and in a column.
MOST_ACROSS, MOST_DOWN = 24, 16
_CELL, _HIGH, _GAP = 40, 26, 22
#: Space between neighbours along the first, second, ... axis from inside.
_SPACE = (6, 11, 16, 20, 30, 34, 44, 44)


@dataclass(frozen=True, kw_only=True)
class _Level:
    """An axis in the grid: where each coordinate that is drawn starts, and how long all of them are."""

    axis: str
    across: bool
    starts: dict[int, float]
    block: float
    length: float
    folded: bool


def mesh_picture(mesh: Mesh, per_node: int | None) -> Picture:
    """Every rank, or of long axes the first few and the last; marked are the groups of rank 0."""
    levels = _levels(mesh)
    left = 16.0 + sum(_label_width(level, mesh) for level in levels if not level.across)
    named = [
        SANS * len(level.axis) + 12 for level in levels if level.across and not _fits(level, mesh.size(level.axis) - 1)
    ]
    left = max([left, *named])
    top = 10.0 + 17 * max(1, sum(level.across for level in levels))
    cells = dict(_cells(levels, mesh, left, top))
    width = left + max([level.length for level in levels if level.across], default=_CELL) + 12
    height = top + max([level.length for level in levels if not level.across], default=_HIGH) + 12
    body = joined(
        [
            *_nodes(cells, per_node, mesh),
            *(_cell(rank, at, mesh) for rank, at in cells.items()),
            *_labels(levels, mesh, left, top),
        ]
    )
    axes = ", ".join(f"{axis.name} {axis.size}" for axis in mesh.axes)
    title = f"{counted(mesh.ranks, 'rank')}: {axes}" + (f"; nodes of {counted(per_node, 'rank')}" if per_node else "")
    return Picture(name="mesh", title=title, width=width, height=height, body=body)


def _levels(mesh: Mesh) -> list[_Level]:
    """From the innermost axis of more than one rank: across, down, across ..."""
    long = [axis for axis in reversed(mesh.axes) if axis.size > 1]
    seen = {
        axis.name: places
        for part, most in ((long[::2], MOST_ACROSS), (long[1::2], MOST_DOWN))
        for axis, places in zip(part[::-1], fitted([axis.size for axis in part[::-1]], most), strict=True)
    }
    extent = {True: float(_CELL), False: float(_HIGH)}
    levels: list[_Level] = []
    across = True
    for axis in long:
        space = _SPACE[min(len(levels), len(_SPACE) - 1)]
        starts, at = {}, 0.0
        places = seen[axis.name]
        for before, place in zip((-1, *places), places, strict=False):
            at += _GAP if place > before + 1 else 0
            starts[place] = at
            at += extent[across] + space
        block, extent[across] = extent[across], at - space
        folded = len(places) < axis.size
        levels.append(
            _Level(axis=axis.name, across=across, starts=starts, block=block, length=extent[across], folded=folded)
        )
        across = not across
    return levels


def _fits(level: _Level, place: int) -> bool:
    """Whether name and number have room above a column; the name stands at the left where they have not."""
    return SANS * len(f"{level.axis} {place}") <= level.block + 4


def _label_width(level: _Level, mesh: Mesh) -> float:
    return 16 + SANS * len(f"{level.axis} {mesh.size(level.axis) - 1}")


def _cells(levels: list[_Level], mesh: Mesh, left: float, top: float) -> Iterator[tuple[int, tuple[float, float]]]:
    """(rank, where it is drawn) in order of ranks."""
    outer = levels[::-1]
    for places in product(*(level.starts for level in outer)):
        x, y = left, top
        coordinate = dict.fromkeys(mesh.names, 0)
        for level, place in zip(outer, places, strict=True):
            coordinate[level.axis] = place
            x += level.starts[place] if level.across else 0
            y += 0 if level.across else level.starts[place]
        yield mesh.rank(coordinate), (x, y)


def _cell(rank: int, at: tuple[float, float], mesh: Mesh) -> Markup:
    x, y = at
    here = mesh.coordinate(rank)
    others = [i for i, name in enumerate(mesh.names) if here[name]]
    mark = "here" if rank == 0 else f"on{others[0] % 8}" if len(others) == 1 else None
    places = ", ".join(f"{name} {place}" for name, place in here.items())
    return tag(
        "g",
        tag("title", f"rank {rank}: {places}"),
        box(x, y, _CELL, _HIGH, "cell", rx=4),
        words(x + _CELL / 2, y + 17, rank, "mid mono" if rank < 10_000 else "mid mono small"),
        class_=f"rank {mark}" if mark else "rank",
        data_r=rank,
    )


def _nodes(cells: dict[int, tuple[float, float]], per_node: int | None, mesh: Mesh) -> Iterator[Markup]:
    """A frame around the cells of each node, where they lie together."""
    if per_node is None:
        return
    found: dict[int, list[int]] = {}
    for rank in cells:
        found.setdefault(rank // min(per_node, mesh.ranks), []).append(rank)
    for node, ranks in found.items():
        xs, ys = [cells[r][0] for r in ranks], [cells[r][1] for r in ranks]
        low, high = (min(xs), min(ys)), (max(xs), max(ys))
        inside = [r for r, (x, y) in cells.items() if low[0] <= x <= high[0] and low[1] <= y <= high[1]]
        if len(inside) == len(ranks):
            wide, tall = high[0] - low[0] + _CELL, high[1] - low[1] + _HIGH
            title = tag("title", f"node {node}: ranks {node * per_node} to {(node + 1) * per_node - 1}")
            yield box(low[0] - 3, low[1] - 3, wide + 6, tall + 6, "soft frame", title, rx=6)


def _labels(levels: list[_Level], mesh: Mesh, left: float, top: float) -> Iterator[Markup]:
    """Coordinates above and to the left, outermost axes farthest out."""
    for across in (True, False):
        outer = [level for level in levels[::-1] if level.across == across]
        out = 8.0 if across else 4.0
        for depth, level in enumerate(outer):
            for offset in _offsets(outer[:depth]):
                yield from _level_labels(level, (left if across else top) + offset, out)
            out += 17 if across else _label_width(level, mesh)


def _offsets(levels: list[_Level]) -> list[float]:
    return [sum(starts) for starts in product(*(level.starts.values() for level in levels))]


def _level_labels(level: _Level, origin: float, out: float) -> Iterator[Markup]:
    ends = list(level.starts.items())
    named = all(_fits(level, place) for place in level.starts)
    if level.across and not named:
        yield words(4, out + 9, level.axis, "quiet")
    for index, (place, start) in enumerate(ends):
        middle = origin + start + level.block / 2
        text = f"{level.axis} {place}"
        if level.across:
            yield words(middle, out + 9, text if named else cut(str(place), level.block + 4), "mid quiet")
        else:
            yield words(out + 4, middle + 4, text, "quiet")
        if level.folded and index == len(ends) - 1:
            gap = origin + start - _GAP / 2 - 3
            yield (
                words(gap, out + 9, "\u2026", "mid quiet")
                if level.across
                else words(out + 10, gap + 4, "\u22ee", "quiet")
            )
