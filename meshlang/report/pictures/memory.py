"""What each rank holds at once, stacked, beside the promise of `[expect]`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...fold import ranges
from ...plan.cost import Memory, memory_at
from ...plan.ir import Plan
from ...plan.state import state_at
from ..tables import bytes_text
from .canvas import SANS, Picture, box, cut, legend, line, words
from .markup import Markup, joined, tag

#: Up to so many ranks each is looked at; of more, the fullest at each place along the pipeline's axis.
MOST_RANKS = 64
#: Parts of a bar, from the left: class, words.
PARTS = (
    ("s0", "parameters"),
    ("s1", "gradients"),
    ("s2", "optimizer"),
    ("s4", "weights gathered"),
    ("s6", "gradients not yet summed"),
    ("s3", "activations (estimate)"),
)
_LEFT, _WIDE, _ROW, _TOP = 150, 760, 30, 44


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Ranks that hold the same, and how much of each part; activations 0 where they are not known."""

    label: str
    ranks: str
    sizes: tuple[int, ...]

    @property
    def total(self) -> int:
        """Of all parts."""
        return sum(self.sizes)


def bars(plan: Plan) -> list[Bar]:
    """Of every rank, equals together; of a large mesh the fullest at each place along the pipeline's axis."""
    zero = dict.fromkeys(plan.mesh.names, 0)
    axis = next(iter(plan.axes_of("pipeline")), None) if plan.stages else None
    places = range(plan.mesh.size(axis)) if axis else (0,)
    rest = [_rest(memory_at(plan, place)) for place in places]
    if plan.ranks <= MOST_RANKS:
        found: dict[tuple[int, ...], list[int]] = {}
        for rank in range(plan.ranks):
            here = plan.mesh.coordinate(rank)
            found.setdefault((*_state(plan, here), *rest[here[axis] if axis else 0]), []).append(rank)
        return [_bar(ranks, sizes) for sizes, ranks in found.items()]
    if axis is None:
        return [Bar(label="fullest rank", ranks="the fullest rank", sizes=(*_state(plan, zero), *rest[0]))]
    return [
        Bar(label=f"{axis} {p}", ranks=f"the fullest at {axis} {p}", sizes=(*_state(plan, {**zero, axis: p}), *rest[p]))
        for p in places
    ]


def _bar(ranks: list[int], sizes: tuple[int, ...]) -> Bar:
    text = f"rank{'s' * (len(ranks) > 1)} {ranges(ranks)}"
    return Bar(label=cut(text, _LEFT - 16), ranks=text, sizes=sizes)


def _state(plan: Plan, coordinate: dict[str, int]) -> tuple[int, int, int]:
    """Bytes at rest on one rank: exact."""
    state = state_at(plan, coordinate)
    return state.parameters, state.gradients, state.optimizer


def _rest(most: Memory) -> tuple[int, int, int]:
    """What comes and goes on the fullest rank of a place."""
    return most.gathered, most.unsummed, most.activations or 0


def memory_picture(plan: Plan, promised: int | None) -> Picture:
    """A bar for each kind of rank; the promise is a line across all of them."""
    found = bars(plan)
    most = max([bar.total for bar in found] + [promised or 0]) or 1
    scale = _WIDE / most
    height = _TOP + _ROW * len(found) + 34
    body = [*_grid(most, scale, height - 34)]
    for index, bar in enumerate(found):
        body += _drawn(bar, _TOP + _ROW * index, scale, promised)
    if promised is not None:
        x = _LEFT + promised * scale
        side = "end" if x > _LEFT + 200 else None
        body += [line(x, _TOP - 8, x, height - 30, "limit")]
        body.append(words(x - 4 if side else x + 4, _TOP - 12, f"[expect] {bytes_text(promised)}", side))
    used = [part for i, part in enumerate(PARTS) if any(bar.sizes[i] for bar in found)]
    body.append(legend(_LEFT, 14, used))
    title = "Bytes that a rank holds at once"
    return Picture(name="memory", title=title, width=_LEFT + _WIDE + 110, height=height, body=joined(body))


def _drawn(bar: Bar, y: float, scale: float, promised: int | None) -> Iterator[Markup]:
    yield words(_LEFT - 8, y + 15, bar.label, "end")
    x = float(_LEFT)
    for size, (class_, text) in zip(bar.sizes, PARTS, strict=True):
        wide = size * scale
        if size:
            told = f"{bar.ranks}: {text} {bytes_text(size)}"
            parts = [tag("title", told), box(x, y, max(wide, 0.5), 21, f"{class_} thin")]
            if wide > SANS * len(bytes_text(size)) + 8:
                parts.append(words(x + wide / 2, y + 14.5, bytes_text(size), "upon mid"))
            yield tag("g", *parts)
        x += wide
    over = promised is not None and bar.total > promised
    text, at = bytes_text(bar.total), x + 6
    if promised is not None and at - 4 < _LEFT + promised * scale < at + 6.8 * len(text):  # beyond the line, not on it
        at = _LEFT + promised * scale + 6
    yield words(at, y + 15, text, "strong bad" if over else "strong")


def _grid(most: int, scale: float, bottom: float) -> Iterator[Markup]:
    """Lines at round numbers of bytes."""
    step = 1
    while most / step > 8:
        step *= 2
    for at in range(0, most + 1, step):
        x = _LEFT + at * scale
        yield line(x, _TOP - 6, x, bottom + 4)
        yield words(x, bottom + 18, bytes_text(at) if at else "0", "quiet small mid")
