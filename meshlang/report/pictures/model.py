"""The model as a tree of modules, equal layers once, with the collectives of a step where they are made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...fold import ranges, template
from ...plan.ir import Collective, Plan
from ..tables import bytes_text
from .canvas import MONO, SANS, Picture, box, cut, words
from .markup import Markup, joined, tag

_ROW, _STEP, _LEFT, _BARS, _BAR = 19, 18, 12, 190, 90
#: A range of layers in a folded name.
_SOME = re.compile(r"\.(\d+|\[[\d,-]+\])(?=[.,+ ]|$)")


@dataclass(kw_only=True)
class Module:
    """A module of the tree: all that differ from it only in numbers, and what is called there."""

    name: str
    count: int = 0
    modules: list[Module] = field(default_factory=list["Module"])
    calls: list[Called] = field(default_factory=list["Called"])


@dataclass(frozen=True, kw_only=True)
class Called:
    """Calls of one kind: at a module's port, of its weights, of their gradients."""

    call: Collective
    what: str
    stages: tuple[int, ...]

    @property
    def total(self) -> int:
        """Bytes a step on each rank that makes the calls."""
        return (self.call.bytes or 0) * self.call.count


def tree(plan: Plan) -> Module:
    """Every module that has a boundary or a tensor, and every collective of the plan at one of them."""
    root = Module(name="", count=1)
    known = {"": root}
    names = dict.fromkeys(edge.module for edge in plan.edges)
    names |= dict.fromkeys(tensor.fqn.rpartition(".")[0] for tensor in plan.tensors)
    for each in dict.fromkeys(around for name in names for around in _around(name)):
        _at(template(each), known).count += 1
    for calls in _alike(plan):
        first, _, what = calls[0].where.partition(" ")
        heads = [_SOME.sub(".*", head) for head in re.split(r"[+,]", first)]
        module = known.get(heads[0]) or known.get(heads[0].rpartition(".")[0]) or root
        whole = heads == [module.name]
        stages = tuple(sorted({call.stage for call in calls if call.stage is not None}))
        told = what if whole else f"{_left(calls[0].where, module.name)}"
        module.calls.append(Called(call=calls[0], what=_open(told), stages=stages))
    return root


def _around(name: str) -> Iterator[str]:
    """A module and those that it lies in, outermost first; not the model."""
    parts = name.split(".") if name else []
    yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _left(where: str, name: str) -> str:
    return where.removeprefix(f"{name}.") if name else where


def _open(text: str) -> str:
    """`output to stage 3` of several stages -> `output to the next stage`."""
    word = "previous" if "gradient" in text else "next"
    return re.sub(r" to stage \d+$", f" to the {word} stage", text)


def _at(name: str, known: dict[str, Module]) -> Module:
    if name not in known:
        known[name] = Module(name=name)
        _at(name.rpartition(".")[0], known).modules.append(known[name])
    return known[name]


def _alike(plan: Plan) -> list[list[Collective]]:
    """Calls that differ only in their layers' numbers and their stage, together; the forward first."""
    found: dict[tuple[object, ...], list[Collective]] = {}
    for call in sorted(plan.collectives, key=lambda call: call.pass_ != "forward"):
        where = call.where if call.stage is None else _open(_SOME.sub(".*", call.where))
        found.setdefault((call.pass_, call.kind, call.axis, call.count, call.bytes, where), []).append(call)
    return list(found.values())


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A line of the picture: a module, or a call of the one above."""

    depth: int
    module: Module | None = None
    call: Called | None = None


def _rows(module: Module, depth: int = 0) -> Iterator[_Row]:
    yield _Row(depth=depth, module=module)
    yield from (_Row(depth=depth, call=call) for call in module.calls)
    for inner in module.modules:
        yield from _rows(inner, depth + 1)


def model_picture(plan: Plan) -> Picture:
    """The tree at the left; at the right kind, axis, bytes and calls of each collective, forward and backward."""
    root = tree(plan)
    rows = list(_rows(root))
    axes = {axis: i % 8 for i, axis in enumerate(plan.mesh.names)}
    most = max((row.call.total for row in rows if row.call), default=0) or 1
    longest = max(_width(row) for row in rows)
    right = max(320.0, longest + 24)
    width = right + 480
    body = [*_links(rows), *_head(right)]
    for index, row in enumerate(rows):
        y = 34.0 + _ROW * index
        if row.module is not None:
            body.append(_module(row, plan.model, y))
        elif row.call is not None:
            body += _call(row.depth, row.call, y, right, axes, most)
    return Picture(
        name="model",
        title=f"{plan.model}: modules and the collectives of a step",
        width=width,
        height=34.0 + _ROW * len(rows),
        body=joined(body),
    )


def _width(row: _Row) -> float:
    if row.module is not None:
        return _LEFT + _STEP * row.depth + MONO * (len(row.module.name.rpartition(".")[2]) + 8)
    assert row.call is not None
    return _LEFT + _STEP * (row.depth + 1) + SANS * len(_said(row.call))


def _module(row: _Row, model: str, y: float) -> Markup:
    assert row.module is not None
    x = _LEFT + _STEP * row.depth
    own = row.module.name.rpartition(".")[2] or model
    if own == "*":
        own = ".".join(row.module.name.rsplit(".", 2)[-2:])
    times = f"  \u00d7 {row.module.count}" if row.module.count > 1 else ""
    return joined(
        [
            tag("circle", cx=x, cy=y - 4, r=3.5, class_="s7"),
            tag("text", own, tag("tspan", times, class_="quiet"), x=float(x + 9), y=y, class_="mono strong"),
        ]
    )


def _said(call: Called) -> str:
    stage = f", stage{'s' * (len(call.stages) > 1)} {ranges(call.stages)}" if call.stages else ""
    return f"{call.what}{stage}"


def _call(depth: int, call: Called, y: float, right: float, axes: dict[str, int], most: int) -> Iterator[Markup]:
    x = _LEFT + _STEP * (depth + 1)
    backward = call.call.pass_ == "backward"
    hue = f"s{axes.get(call.call.axis.partition('+')[0], 7)}"
    told = f"{call.call.pass_}: {call.call.kind} over {call.call.axis}, {call.call.count} of {_bytes(call.call)}"
    yield words(x, y, _said(call), "quiet")
    yield words(right, y, "\u2190" if backward else "\u2192", "mono")
    yield words(right + 14, y, call.call.kind, "mono")
    yield box(right + 120, y - 10, 9, 9, hue, rx=2)
    yield words(right + 134, y, cut(call.call.axis, 84, MONO), "mono")
    yield words(right + 316, y, f"{call.call.count} \u00d7 {_bytes(call.call)}", "mono end")
    size = max(1.5, (_BAR + 60) * call.total / most) if call.call.bytes else 0
    yield tag(
        "g", tag("title", f"{told}; {bytes_text(call.total)} a step"), box(right + 326, y - 10, size, 11, hue, rx=2)
    )


def _bytes(call: Collective) -> str:
    return bytes_text(call.bytes)


def _head(right: float) -> Iterator[Markup]:
    yield words(_LEFT, 13, "module, and where a collective is made", "quiet small")
    yield words(right, 13, "\u2192 forward, \u2190 backward", "quiet small")
    yield words(right + 134, 13, "axis", "quiet small")
    yield words(right + 316, 13, "calls \u00d7 bytes each", "quiet small end")
    yield words(right + 326, 13, "bytes a step", "quiet small")


def _links(rows: Sequence[_Row]) -> Iterator[Markup]:
    """From each module down to the modules in it."""
    last: dict[int, float] = {}
    for index, row in enumerate(rows):
        if row.module is None:
            continue
        y = 30.0 + _ROW * index
        if row.depth:
            x = _LEFT + _STEP * (row.depth - 1)
            yield tag("path", d=f"M{x} {last[row.depth - 1] + 4:.0f}V{y:.0f}H{x + _STEP - 4}", class_="axis")
        last[row.depth] = y
