"""The Plan: frozen plain data that prints, re-reads and diffs. Nothing in it needs torch.

A Plan says of every tensor where it is, of every module boundary how the value that crosses it
is laid out on both sides, and of every collective that follows from these, how large it is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ..mesh import Mesh
from ..pipeline.ir import Program
from ..placement import Layout
from .blocks import Blocks
from .tensor import Dim as Dim
from .tensor import Origin as Origin
from .tensor import Tensor as Tensor
from .tensor import chunk as chunk
from .tensor import numel as numel

Kind = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send"]
Pass = Literal["forward", "backward"]


@dataclass(frozen=True, kw_only=True)
class Edge:
    """A value that crosses the boundary of a module.

    port: "input.NAME", NAME an argument of the module's forward, or "output".
    names: for each tensor dim the names of its factors. shape: global; a dim of the run's own
    that the spec gives no size for is None.
    src and dst: the layout that the value comes in and the one it goes on with. Where they
    differ, it is redistributed at this boundary, and nowhere else.
    whole: names that the module looks over as a whole in this input: no axis may cut them in dst,
    unless a strategy computes across the parts.
    """

    module: str
    port: str
    names: tuple[tuple[str, ...], ...]
    shape: tuple[int | None, ...]
    src: Layout
    dst: Layout
    whole: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Values that a module's forward leaves for its backward, `count` of one size.

    port: as large as what crosses this port, on the module's side. Without one, a value of these
    `names`, of global `shape`, with the axes that cut each dim.
    dtype: None is the one that is computed in.
    rough: the card does not say what the module leaves; its ports stand for it.
    """

    module: str
    count: int = 1
    port: str | None = None
    names: tuple[tuple[str, ...], ...] = ()
    shape: tuple[int | None, ...] = ()
    cuts: tuple[tuple[str, ...], ...] = ()
    dtype: str | None = None
    rough: bool = False


@dataclass(frozen=True, kw_only=True)
class Collective:
    """Calls of one kind that a rank makes in one training step.

    axis: the mesh axis, or several joined by "+" that act as one group.
    bytes: of one call: the whole tensor on the larger side (what an all-gather gives, what a
    reduce-scatter takes, what an all-reduce or all-to-all works on), or None without `[sizes]`.
    count: calls a step.
    stage: the stage whose ranks make the calls; None where all ranks make them.
    replica: whose copy of the stage makes them; None where each copy does, so many times.
    """

    kind: Kind
    axis: str
    where: str
    pass_: Pass
    bytes: int | None
    count: int
    stage: int | None = None
    replica: int | None = None


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Cross-entropy over logits of this layout; dim `vocab` may be cut, and is then summed over its axis."""

    shape: tuple[int | None, ...]
    layout: Layout
    vocab: int


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Modules whose parameters are gathered, and whose gradients are reduced, as one buffer.

    after_forward: "free" gathers them again in the backward, "keep" holds them till then.
    """

    modules: tuple[str, ...]
    tensors: tuple[str, ...]
    after_forward: Literal["free", "keep"]


@dataclass(frozen=True, kw_only=True)
class StateBytes:
    """Bytes at rest on the fullest rank: exact, not a mean."""

    parameters: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        """All three."""
        return self.parameters + self.gradients + self.optimizer


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Element types, by torch's names; see `[precision]`.

    `written` names those that the spec says. The others are torchtitan's defaults: bytes are
    counted in them, and a launch leaves the recipe's own in force.
    """

    state: str = "float32"
    compute: str = "bfloat16"
    reduce: str = "float32"
    written: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunSizes:
    """`[sizes]` with defaults filled in; None where the spec is silent."""

    batch: int | None = None
    seq: int | None = None
    accumulation: int = 1


#: A value of a plugin's field.
Option = str | int | float | bool | tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True)
class StrategyUse:
    """A strategy that rewrote the plan, by name, with its options; `ops` is the import path of its torch part."""

    name: str
    axis: str
    options: tuple[tuple[str, Option], ...] = ()
    ops: str | None = None


@dataclass(frozen=True, kw_only=True)
class PipelineUse:
    """The schedule and its numbers.

    Attributes:
        chunks: stages a rank.
        lengths: tokens of each subsequence; () where sequences run whole, or their tokens are not known.
        ops: what runs it: the name that torch knows the schedule by, or an import path.
        order: for each coordinate of the pipeline axis its actions in torch's notation.
        program: the same of a schedule that has no such notation; one of the two where the order is known.
    """

    schedule: str
    microbatches: int | None = None
    subsequences: int | None = None
    chunks: int | None = None
    split: str | None = None
    lengths: tuple[int, ...] = ()
    ops: str | None = None
    order: tuple[tuple[str, ...], ...] = ()
    program: Program | None = None
    options: tuple[tuple[str, Option], ...] = ()

    @property
    def by_torch(self) -> bool:
        """Whether torch's pipeline runs it: a schedule that torch knows, or a Program that a spec gives to it."""
        return self.program is None or dict(self.options).get("runtime") == "torch"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Consecutive modules that run as one step of the pipeline.

    coordinate: where on the pipeline axis the ranks that hold it lie.
    mirror: where those lie that hold its copy in a second replica; None where there is one replica.
    """

    index: int
    modules: tuple[str, ...]
    coordinate: int
    mirror: int | None = None

    @property
    def coordinates(self) -> tuple[int, ...]:
        """Of each replica's copy."""
        return (self.coordinate,) if self.mirror is None else (self.coordinate, self.mirror)

    def holds(self, fqn: str) -> bool:
        """Whether a module or tensor is one of the stage's, or lies inside one."""
        return any(fqn == module or fqn.startswith(f"{module}.") for module in self.modules)


#: What an axis carries: parts of the batch, of the sequence only, of some weight, or stages.
Role = Literal["data", "context", "tensor", "pipeline", "none"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Ready to lower.

    `recompute` names the modules whose forward runs again in the backward; none lies in another.
    """

    model: str
    mesh: Mesh
    roles: tuple[tuple[str, Role], ...]
    sizes: RunSizes
    precision: Precision
    tensors: tuple[Tensor, ...]
    edges: tuple[Edge, ...]
    units: tuple[Unit, ...]
    collectives: tuple[Collective, ...]
    state_bytes: StateBytes | None
    loss: Loss | None = None
    strategies: tuple[StrategyUse, ...] = ()
    pipeline: PipelineUse | None = None
    stages: tuple[Stage, ...] = ()
    recompute: tuple[str, ...] = ()
    block: Blocks | None = None
    saved: tuple[Saved, ...] = ()

    @property
    def ranks(self) -> int:
        """Ranks of the whole mesh."""
        return self.mesh.ranks

    def role(self, axis: str) -> Role:
        """What an axis of the mesh carries."""
        return dict(self.roles)[axis]

    def axes_of(self, *roles: Role) -> tuple[str, ...]:
        """Axes with one of these roles, in mesh order."""
        return tuple(axis for axis, role in self.roles if role in roles)

    @cached_property
    def stage_of(self) -> dict[str, Stage]:
        """Tensor fqn -> its stage; empty for a plan without stages."""
        owner = {module: stage for stage in self.stages for module in stage.modules}
        heads = {tensor.fqn: _heads(tensor.fqn) for tensor in self.tensors} if owner else {}
        return {fqn: owner[head] for fqn, above in heads.items() for head in above if head in owner}

    def holds(self, tensor: Tensor, coordinate: dict[str, int]) -> bool:
        """Whether the rank at `coordinate` holds a part of a tensor: its stage is there, or there are none."""
        stage = self.stage_of.get(tensor.fqn)
        return stage is None or any(coordinate[axis] in stage.coordinates for axis in self.axes_of("pipeline"))

    @property
    def passes(self) -> int:
        """Forwards a step of each module, over all replicas, each with its share of the rank's tokens."""
        return self.batches * self.slices

    @property
    def batches(self) -> int:
        """Parts that a rank's sequences of a step are cut into."""
        microbatches = self.pipeline.microbatches if self.pipeline is not None and self.stages else None
        return self.sizes.accumulation * (microbatches or 1)

    @property
    def slices(self) -> int:
        """Subsequences that each sequence is cut into."""
        subsequences = self.pipeline.subsequences if self.pipeline is not None and self.stages else None
        return subsequences or 1

    @property
    def replicas(self) -> int:
        """Copies of every stage along the pipeline axis; each takes its share of the passes."""
        return 2 if any(stage.mirror is not None for stage in self.stages) else 1

    @cached_property
    def shared(self) -> tuple[tuple[int | None, int], ...]:
        """(replica, how many of `batches` go through it); one entry, of None, where as many go through each."""
        program = self.pipeline.program if self.pipeline is not None else None
        if self.replicas == 1 or program is None:
            return ((None, self.batches // self.replicas),)
        went = Counter(program.replica_of.values())
        if len({went[replica] for replica in range(program.replicas)}) == 1:
            return ((None, self.batches // self.replicas),)
        return tuple((replica, went[replica] * self.sizes.accumulation) for replica in range(program.replicas))

    def recomputes(self, module: str) -> bool:
        """Whether a module's forward runs again in the backward: it is recomputed, or lies in one that is."""
        return any(module == each or module.startswith(f"{each}.") for each in self.recompute)

    @cached_property
    def by_fqn(self) -> dict[str, Tensor]:
        """Tensors by each of their names."""
        return {name: tensor for tensor in self.tensors for name in (tensor.fqn, *tensor.tied)}

    @cached_property
    def by_port(self) -> dict[tuple[str, str], Edge]:
        """Edges by module and port."""
        return {(edge.module, edge.port): edge for edge in self.edges}

    @cached_property
    def edges_of(self) -> dict[str, tuple[Edge, ...]]:
        """Module -> the edges of its ports."""
        found: dict[str, list[Edge]] = {}
        for edge in self.edges:
            found.setdefault(edge.module, []).append(edge)
        return {module: tuple(edges) for module, edges in found.items()}


def _heads(fqn: str) -> list[str]:
    """Every module around a tensor."""
    parts = fqn.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]
