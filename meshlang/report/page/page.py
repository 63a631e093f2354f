"""The page itself: sections of pictures and tables put into one HTML file that needs nothing else."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from string import Template

from ...diagnostics import counted
from ...fold import ranges
from ...plan.calls import calls_at
from ...plan.cost import memory
from ...plan.ir import Plan
from ...plan.slices import lengths_of, unequal
from ..pictures.canvas import Picture
from ..pictures.markup import Markup, joined, safe, tag
from ..pictures.palette import SERIES, shared, variables
from ..pictures.tensors import Group
from ..pictures.timeline import timeline_data
from ..plan import ROLES
from ..schedule import costs_text, subsequences_text
from ..tables import bytes_text, shape_text
from .contents import MOST_TENSORS, Contents
from .origins import TIMES, Anchors, decided_table, listings_markup


def page(shown: Contents) -> str:
    """The whole file, the same for the same spec."""
    style, script = _style(), _read("page.js")
    sections = list(_sections(shown))
    plan = shown.plan
    axes = TIMES.join(f"{axis.name} {axis.size}" for axis in plan.mesh.axes)
    return Template(_read("page.html")).substitute(
        policy=f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'",
        title=safe(f"{plan.model} on {counted(plan.ranks, 'rank')}"),
        style=style,
        heading=safe(f"{plan.model} on {plan.ranks:,} ranks"),
        lead=safe(axes),
        nav=joined(tag("a", name, href=f"#{anchor}") for anchor, name, _ in sections),
        last=plan.ranks - 1,
        sections=joined((tag("section", *body, id=anchor, tabindex=-1) for anchor, _, body in sections), "\n"),
        version=safe(version("meshlang")),
        spec=safe(shown.name),
        data=_json(shown),
        script=script,
    )


def _read(name: str) -> str:
    return files(__name__.rpartition(".")[0]).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def _style() -> str:
    """Colours of both themes, of print, and the rules."""
    paints = "\n".join(
        f".key.s{i}{{background:var(--s{i})}}.p{i} rect{{fill:var(--s{i});fill-opacity:.55}}" for i in range(SERIES)
    )
    light, dark = variables(dark=False), variables(dark=True)
    themes = (
        f":root{{color-scheme:light;{light}}}"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}"
        f"@media print{{:root:root:root{{color-scheme:light;{light}}}}}"
    )
    return f"{themes}\n{shared()}{Template(_read('page.css')).substitute(paints=paints)}"


def _json(shown: Contents) -> str:
    """The page's data; no angle bracket or ampersand is left in it, so no text can end the element."""
    plan = shown.plan
    data = {
        "axes": [[axis.name, axis.size] for axis in plan.mesh.axes],
        "node": shown.per_node,
        "timeline": None
        if shown.program is None or shown.timeline is None
        else timeline_data(shown.program, shown.timeline) | {"axis": shown.pipeline_axis},
    }
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


# Sections: anchor, name, what is in it.

Section = tuple[str, str, list[Markup]]


def _sections(shown: Contents) -> Iterator[Section]:
    yield "summary", "Summary", [_head("Summary"), _facts(shown)]
    yield "mesh", "Mesh", _mesh(shown)
    yield "tensors", "Layouts", _tensors(shown)
    yield "model", "Model and collectives", _model(shown)
    if shown.pipeline is not None:
        yield "pipeline", "Pipeline", _pipeline(shown, shown.pipeline)
    if shown.blocks is not None:
        yield "blocks", "Blocks", _blocks(shown, shown.blocks)
    yield "memory", "Memory", _memory(shown)
    yield "decided", "Who decided", _decided(shown)


def _head(text: str, note: str = "") -> Markup:
    return joined([tag("h2", text), tag("p", note) if note else ""])


def _figure(picture: Picture, class_: str = "") -> Markup:
    return tag("div", picture.svg(), class_=f"picture {class_}".rstrip())


def _facts(shown: Contents) -> Markup:
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", text)) for name, text in _said(shown)), class_="facts")


def _said(shown: Contents) -> Iterator[tuple[str, str]]:
    plan, most = shown.plan, memory(shown.plan)
    yield "ranks", f"{plan.ranks:,}" + (f" in nodes of {shown.per_node}" if shown.per_node else "")
    if plan.sizes.batch is not None and plan.sizes.seq is not None:
        yield "a step", f"{plan.sizes.batch:,} sequences of {plan.sizes.seq:,} tokens"
    types = plan.precision
    yield "types", f"state {types.state}, compute {types.compute}, reduce {types.reduce}"
    yield "state of the fullest rank", f"{bytes_text(most.state)} (exact)"
    kind = "estimate" if most.activations is not None else "without activations"
    yield "held at once, fullest rank", f"{bytes_text(most.total)} ({kind})"
    if shown.promised is not None:
        yield "promised by [expect]", bytes_text(shown.promised)
    for axis, text in _sent(plan):
        yield f"collectives over {axis}, a step", text
    for use in plan.strategies:
        yield f"strategy over {use.axis}", use.name
    if shown.timeline is not None and plan.pipeline is not None:
        yield f"bubble of {plan.pipeline.schedule}", f"{100 * shown.timeline.bubble:.2f} %"


def _sent(plan: Plan) -> Iterator[tuple[str, str]]:
    """Of rank 0: calls and bytes by axis."""
    totals: dict[str, tuple[int, int | None]] = {}
    for call in calls_at(plan, 0):
        count, size = totals.get(call.axis, (0, 0))
        more = None if call.bytes is None or size is None else size + call.bytes * call.count
        totals[call.axis] = count + call.count, more
    who = " (rank 0)" if plan.stages else ""
    yield from ((axis, f"{count:,} calls, {bytes_text(size)}{who}") for axis, (count, size) in totals.items())


def _mesh(shown: Contents) -> list[Markup]:
    plan = shown.plan
    note = "One cell a rank. Point at a cell for its groups, or at an axis for all of that axis's groups; "
    note += "marked at first: rank 0 and the groups it is in. "
    note += "A frame is a node. " if shown.per_node else "[topology] says no ranks_per_node, so no nodes are drawn. "
    buttons = [
        tag(
            "button",
            tag("span", class_=f"key s{i % SERIES}"),
            f"{axis.name} {axis.size}: {ROLES[plan.role(axis.name)]}",
            type="button",
            data_axis=i,
            aria_pressed="false",
        )
        for i, axis in enumerate(plan.mesh.axes)
    ]
    told = tag("p", "", id="groups", class_="note", aria_live="polite")
    return [_head("Mesh", note), tag("div", *buttons, class_="tools"), told, _figure(shown.mesh, "mesh")]


def _tensors(shown: Contents) -> list[Markup]:
    note = "Each picture is one kind of tensor; equal layers are told once. Framed: the parts that ranks compute with. "
    note += "Stripes: what a rank keeps at rest. Numbers are ranks; +n: so many more ranks have the same part."
    figures = [_tensor(shown.plan, g, p) for g, p in zip(shown.groups, shown.tensors, strict=False)]
    left = len(shown.groups) - MOST_TENSORS
    more = tag("p", f"{left} more kinds of tensor are not drawn", class_="note") if left > 0 else Markup("")
    return [_head("Layouts", note), tag("div", *figures, class_="gallery"), more]


def _tensor(plan: Plan, group: Group, picture: Picture) -> Markup:
    first = group.first
    lines = [f"{first.kind}, {shape_text(first.shape)}"]
    lines += [f"{len(group.tensors)} tensors"] * (len(group.tensors) > 1)
    lines += [f"cut at rest over {TIMES.join(first.stored)}"] * bool(first.stored)
    lines += [f"gradient: a sum over {', '.join(first.grad)}"] * bool(first.grad)
    held = None
    if plan.stages:
        stages = [plan.stage_of[tensor.fqn] for tensor in group.tensors]
        lines.append(f"stage {ranges(stage.index for stage in stages)}")
        lines += [f"numbers: ranks of stage {stages[0].index}"] * (len({stage.index for stage in stages}) > 1)
        places = sorted({place for stage in stages for place in stage.coordinates})
        held = " ".join(map(str, (plan.mesh.names.index(plan.axes_of("pipeline")[0]), *places)))
    caption = tag("figcaption", "; ".join(lines))
    return tag("figure", tag("h3", tag("code", group.text)), picture.svg(), caption, data_held=held)


def _model(shown: Contents) -> list[Markup]:
    note = "What a rank sends in one training step follows from the layouts on both sides of each boundary. "
    note += "Bytes are those of the whole tensor on the larger side; bars are calls times bytes."
    return [_head("Model and collectives", note), _figure(shown.model)]


def _pipeline(shown: Contents, picture: Picture) -> list[Markup]:
    assert shown.timeline is not None
    assert shown.plan.pipeline is not None
    timeline = shown.timeline
    differ = f", {subsequences_text(shown.plan.slices, lengths_of(shown.plan))}" if unequal(shown.plan) else ""
    note = f"{shown.plan.pipeline.schedule}{differ}: makespan {timeline.makespan:g}, "
    note += f"bubble {100 * timeline.bubble:.2f} %, "
    note += f"most activations held {max(timeline.peaks):.4g}. A unit of time is the forward of one sequence on one "
    note += f"rank's share of the model; {costs_text(shown.costs)}."
    buttons = [
        tag("button", text, type="button", data_zoom=name, title=told)
        for name, text, told in (("in", "+", "zoom in"), ("out", "\u2212", "zoom out"), ("all", "all", "all of it"))
    ]
    told = tag(
        "span",
        "drag to move; ctrl and wheel, or + and -, to zoom; arrows go from operation to operation",
        class_="note",
    )
    figure = tag("div", picture.svg(), class_="picture timeline", tabindex=0, role="group", aria_label="Timeline")
    return [_head("Pipeline", note), tag("div", *buttons, told, class_="tools"), figure]


def _blocks(shown: Contents, picture: Picture) -> list[Markup]:
    blocks = shown.plan.block
    assert blocks is not None
    note = f"{blocks.blocks} blocks of {blocks.block_size} tokens over {blocks.axis} {blocks.size}; "
    note += (
        f"{blocks.context} ranks share one clean sequence. Left: which rank computes which queries, and what they see. "
    )
    note += "Right: pairs of a query and a key in one layer and sequence, by the ranks that have them."
    return [_head("Blocks", note), _figure(picture)]


def _memory(shown: Contents) -> list[Markup]:
    most = memory(shown.plan)
    note = "State at rest is exact; what is gathered and not yet summed follows from the units; activations are "
    note += "a rough estimate, as the card does not say what modules save." if most.rough else "an estimate."
    if most.activations is None:
        note = "State at rest is exact. Without `batch` and `seq` in [sizes], activations are not known."
    return [_head("Memory", note), _figure(shown.memory)]


def _decided(shown: Contents) -> list[Markup]:
    anchors = Anchors(shown.listings)
    note = "The line that decided each dimension of each tensor, and how values and storage are cut. "
    note += "Lines that decide something are marked in the files below."
    table = decided_table(shown.plan, shown.groups, shown.lines, anchors)
    files_: Sequence[Markup] = [
        tag("h2", "The files"),
        listings_markup(shown.plan, shown.listings, shown.lines, anchors),
    ]
    return [_head("Who decided", note), table, *files_]
