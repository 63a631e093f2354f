"""What a report shows: a plan, what its spec says beside it, and the files whose lines decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ...card.find import Cards
from ...diagnostics import counted
from ...language.spec import Spec
from ...pipeline.costs import Costs
from ...pipeline.ir import Program
from ...pipeline.simulate import Timeline, simulate
from ...plan.ir import Plan
from ...plan.slices import costs_of
from ...plan.stages import program_of_plan
from ...source import Source
from ..pictures.canvas import Picture
from ..pictures.memory import memory_picture
from ..pictures.mesh import mesh_picture
from ..pictures.model import model_picture
from ..pictures.pairs import pairs_picture
from ..pictures.tensors import Group, groups, tensor_picture
from ..pictures.timeline import timeline_picture
from .origins import Line, Listing, lines_of, origins

#: Kinds of tensors that are drawn.
MOST_TENSORS = 120


@dataclass(frozen=True, kw_only=True)
class Contents:
    """All that a page is made of.

    Attributes:
        name: the spec, as it was asked for.
        per_node, promised: of `[topology]` and `[expect]`.
        listings: the spec first, then includes, laid-over keys and cards.
    """

    name: str
    plan: Plan
    per_node: int | None
    promised: int | None
    lines: tuple[Line, ...]
    listings: tuple[Listing, ...]

    @cached_property
    def groups(self) -> list[Group]:
        """Tensors, alike ones together."""
        return groups(self.plan)

    @cached_property
    def program(self) -> Program | None:
        """Of a pipeline of more than one rank whose schedule says its order."""
        return program_of_plan(self.plan) if self.plan.stages else None

    @property
    def costs(self) -> Costs:
        """Forward 1 and backward 2, and attention where subsequences differ; nothing else costs."""
        return costs_of(self.plan)

    @cached_property
    def timeline(self) -> Timeline | None:
        """The program under these costs."""
        return simulate(self.program, self.costs) if self.program is not None else None

    @property
    def window(self) -> int | None:
        """Tokens back that attention over blocks sees; None is all."""
        for use in self.plan.strategies:
            value = dict(use.options).get("window")
            if self.plan.block is not None and use.axis == self.plan.block.axis and isinstance(value, int):
                return value
        return None

    # The pictures of a report.

    @cached_property
    def mesh(self) -> Picture:
        """The grid of ranks."""
        return mesh_picture(self.plan.mesh, self.per_node)

    @cached_property
    def tensors(self) -> list[Picture]:
        """One for each kind of tensor."""
        return [tensor_picture(self.plan, group, i) for i, group in enumerate(self.groups[:MOST_TENSORS], 1)]

    @cached_property
    def model(self) -> Picture:
        """The tree of modules and collectives."""
        return model_picture(self.plan)

    @property
    def pipeline_axis(self) -> str:
        """That carries the stages."""
        return "+".join(self.plan.axes_of("pipeline"))

    @cached_property
    def pipeline(self) -> Picture | None:
        """The timeline."""
        if self.program is None or self.timeline is None or self.plan.pipeline is None:
            return None
        title = f"{self.plan.pipeline.schedule} on {counted(self.program.ranks, 'rank')}"
        return timeline_picture(title, self.program, self.timeline, self.pipeline_axis)

    @cached_property
    def blocks(self) -> Picture | None:
        """Who computes which attention."""
        return pairs_picture(self.plan.block, self.window) if self.plan.block is not None else None

    @cached_property
    def memory(self) -> Picture:
        """What ranks hold."""
        return memory_picture(self.plan, self.promised)

    def pictures(self) -> Iterator[Picture]:
        """Each of them."""
        yield from (self.mesh, *self.tensors, self.model, self.memory)
        yield from (each for each in (self.pipeline, self.blocks) if each is not None)


def contents(plan: Plan, spec: Spec, sources: Sequence[Source], sets: Sequence[str], cards: Cards) -> Contents:
    """What a report on a compiled spec shows.

    Args:
        sources: the files of the spec, the root first.
        sets: keys laid over it.
        cards: where cards lie; those that decide a dim are shown.
    """
    found = [Listing(name=source.name, text=source.text) for source in sources]
    found += [Listing(name="--set", text="\n".join(sets))] if sets else []
    known = {listing.name for listing in found}
    for name in origins(plan):
        text = None if name in known else _text(name, cards)
        if text is not None:
            found.append(Listing(name=name, text=text))
    node, promise = spec.topology.ranks_per_node, spec.expect.memory_per_rank
    return Contents(
        name=spec.source.name,
        plan=plan,
        per_node=None if node is None else node.value,
        promised=None if promise is None else promise.value,
        lines=tuple(lines_of(spec, plan)),
        listings=tuple(found),
    )


def _text(name: str, cards: Cards) -> str | None:
    """The card that an origin names: an installed one, or a file beside the spec."""
    path = cards.path(name.removeprefix("card:")) if name.startswith("card:") else Path(name)
    try:
        return Source.read(path).text if path is not None and path.is_file() else None
    except (OSError, ValueError):
        return None
