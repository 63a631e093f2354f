"""All that the author of a plugin imports: Strategy, Schedule, and the Context that they are asked in.

A plugin is a frozen, keyword-only dataclass whose fields are the keys of its TOML table, and is
found by an entry point of the group `meshlang.strategies` or `meshlang.schedules`. It knows no
torch: its torch part is a module that `ops` names.

What the plan's edges say is done for a strategy: it is enough to change their layouts in `apply`.
Where a module itself must compute otherwise, `apply` adds what that sends to `plan.collectives`, puts
what its forward leaves for its backward in `plan.saved` in place of what the card says of it,
and the module of `ops` has one or both of

    install(plan, use, model, mesh) -> None
        Called once, before values at module boundaries are redistributed. A module of the model is
        changed by setting its `forward`: it gets and gives values as the inner sides of its edges say.
        Such a model is neither compiled nor captured in a CUDA graph.

    prepare_batch(plan, use, batch, mesh) -> batch
        One rank's part of a batch of whole sequences, a dict: "input", "labels", and arguments of the
        model by name, among them "positions" and "attention_masks". Without it, an axis that carries
        the sequence cuts tokens in rank order, or head and tail where the strategy has
        `balance = "head_tail"`; the mask loses rows only where queries are cut and keys are not. With
        MAKES_MASKS = True in the module the batch comes without "attention_masks", and it makes its own.

`use` holds the strategy's fields, `mesh` the ranks of its axis, or None where there is one. Such a
module may use `meshlang.lowering`. `meshlang.testing` has the laws that every plugin passes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from .diagnostics import Diagnostic, Help, Label
from .language.files import lies_outside, outside
from .language.spec import DTYPE_BYTES, PluginTable
from .mesh import Mesh
from .pipeline.ir import Program
from .pipeline.notation import program_of
from .placement import Layout, Partial, Placement, Replicate, Shard
from .plan.blocks import Blocks
from .plan.ir import Collective, Edge, PipelineUse, Plan, Saved, StrategyUse, Tensor, Unit
from .source import Source, Span

__all__ = [
    "DTYPE_BYTES",
    "Blocks",
    "Collective",
    "Context",
    "Diagnostic",
    "Edge",
    "Help",
    "Label",
    "Layout",
    "Mesh",
    "Partial",
    "PipelineUse",
    "Placement",
    "Plan",
    "Program",
    "Replicate",
    "Saved",
    "Schedule",
    "Shard",
    "Source",
    "Span",
    "Strategy",
    "StrategyUse",
    "Tensor",
    "Unit",
]


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a plugin is asked in: the plan so far, where its table stands, and how many ranks share a node.

    `inside` is the folder that files have to lie in, or None where they may lie anywhere.
    """

    plan: Plan
    table: PluginTable
    ranks_per_node: int | None = None
    inside: str | None = None

    def outside(self, key: str) -> Diagnostic | None:
        """A finding when the file that a key names lies outside the folder of the spec, and it has to lie there."""
        written = self.table.fields.get(key)
        if self.inside is None or written is None or written.span.source.name.startswith("--"):
            return None
        path = Path(written.span.source.name).parent / str(written.value)
        return lies_outside(str(written.value), written.span) if outside(path, self.inside) else None

    def finding(self, code: str, message: str, *, key: str | None = None, notes: Iterable[str] = ()) -> Diagnostic:
        """A finding at the value of one of the table's keys, or at the table when `key` is not written."""
        written = self.table.fields.get(key or "")
        span = written.span if written is not None else self.table.name.span
        return Diagnostic(code=code, message=message, label=Label(span=span), notes=tuple(notes))


class Strategy(ABC):
    """An algorithm over one mesh axis: rewrites a plan, purely.

    Subclasses are frozen dataclasses with a field `axis`, and final.
    """

    axis: str
    #: Import path of the torch part, or None when the plan's redistributions say it all.
    ops: ClassVar[str | None] = None
    #: Dimensions that the strategy itself cuts over its axis, where no rule says otherwise. Parts need not be equal.
    places: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def check(self, context: Context) -> Iterable[Diagnostic]:
        """What stands against this strategy on this plan."""

    @abstractmethod
    def apply(self, plan: Plan) -> Plan:
        """The plan with the strategy in it; equal in, equal out."""


class Schedule(ABC):
    """An order of forward and backward over the pipeline axis.

    Subclasses are frozen dataclasses of the schedule's own keys, and final.
    """

    #: The name that torch knows the schedule by; "csv" where torch runs what `order` says, action by action;
    #: or the import path of what runs its Program. None where it can be planned only.
    ops: ClassVar[str | None] = None
    #: How stages lie on `pp` ranks: "loop" puts stage s on s % pp; "v" goes to the last rank and back.
    placement: ClassVar[Literal["loop", "v"]] = "loop"

    def stages_per_rank(self, context: Context) -> int:
        """How many stages a rank holds, of each replica."""
        return 1

    def order(self, context: Context) -> tuple[tuple[str, ...], ...]:
        """For each rank along the pipeline axis its actions in order, as `meshlang.pipeline.orders` writes them.

        Without it, the plan cannot show the order, nor say how often weights are gathered that
        are freed after each forward.
        """
        return ()

    def program(self, context: Context) -> Program | None:
        """Where each stage of each replica lies, and what each rank does; without it, as `order` says.

        A schedule that slices sequences, or has two replicas, has no order in torch's notation and
        says its Program here. It is asked only for numbers that `check` has nothing against.
        """
        order = self.order(context)
        return program_of(order) if order else None

    def tokens(self, context: Context) -> tuple[int, ...]:
        """Tokens of each subsequence; () where sequences run whole, or `[sizes]` has no `seq`."""
        return ()

    @abstractmethod
    def check(self, context: Context) -> Iterable[Diagnostic]:
        """What stands against this schedule on this plan."""
