"""A spec as written: every value with the place it stands at. Nothing is resolved yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from ..source import Source, Span
from .pattern import Pattern

T = TypeVar("T")

Level = Literal["card", "strategy", "place", "within", "at"]

#: Weak to strong: the stronger level decides, dimension by dimension.
LEVELS: tuple[Level, ...] = ("card", "strategy", "place", "within", "at")


@dataclass(frozen=True, kw_only=True)
class Written(Generic[T]):
    """A value, where it stands, and where the key that names it stands."""

    value: T
    span: Span
    key: Span


@dataclass(frozen=True, kw_only=True)
class AxisEntry:
    """One line of `[mesh]`; `size` None is "rest"."""

    name: str
    size: int | None
    span: Span
    key: Span


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """`[sizes]`: sequences a step over all ranks, tokens a sequence, forward-backwards a step."""

    batch: Written[int] | None = None
    seq: Written[int] | None = None
    accumulation: Written[int] | None = None


#: Bytes of an element of each type that `[precision]` may say.
DTYPE_BYTES: Mapping[str, int] = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}

#: The same, and of types that only a value left for the backward has.
SAVED_BYTES: Mapping[str, int] = {**DTYPE_BYTES, "bool": 1, "int64": 8, "complex64": 8}


@dataclass(frozen=True, kw_only=True)
class Precision:
    """`[precision]`: element types that bytes are counted in; `launch` hands them to torchtitan.

    state: parameters, gradients and optimizer state at rest. compute: weights and activations
    in forward and backward. reduce: gradients while they are summed over the data axes.
    """

    state: Written[str] | None = None
    compute: Written[str] | None = None
    reduce: Written[str] | None = None


@dataclass(frozen=True, kw_only=True)
class Topology:
    """`[topology]`: axis order, outermost first, and how ranks fill nodes."""

    order: tuple[Written[str], ...] | None = None
    ranks_per_node: Written[int] | None = None
    inside_node: tuple[Written[str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class PlaceRule:
    """One decision: inside `pattern` (the whole model when None), dimension `name` is cut by `axes`.

    `axes` () is "whole". `key` is the dimension's name as written, `span` the value.
    `preset` is true when the rule came from a preset of meshlang's, which may speak of
    dimensions that a model lacks. `pattern_span` is the glob as written.
    """

    level: Level
    pattern: Pattern | None
    name: str
    axes: tuple[Written[str], ...]
    span: Span
    key: Span
    why: Written[str] | None = None
    preset: bool = False
    pattern_span: Span | None = None


@dataclass(frozen=True, kw_only=True)
class Store:
    """`[store]`: parameters are also cut at rest, along dim 0, over these axes together.

    `exception_spans` are the places of `exceptions`, one each.
    """

    over: tuple[Written[str], ...]
    after_forward: Written[str] | None = None
    exceptions: tuple[Pattern, ...] = ()
    exception_spans: tuple[Span, ...] = ()
    span: Span
    key: Span


@dataclass(frozen=True, kw_only=True)
class Recompute:
    """`[recompute]`: modules whose forward runs again in the backward, since it keeps only their inputs.

    `pattern_spans` are the places of `modules`, one each.
    """

    modules: tuple[Pattern, ...]
    pattern_spans: tuple[Span, ...]
    span: Span
    key: Span


@dataclass(frozen=True, kw_only=True)
class PluginTable:
    """`[strategy.NAME]`, or `[pipeline]` under the schedule's name: the plugin as its fields say.

    `plugin` is an instance of the class that the entry point names, built from `fields`.
    """

    name: Written[str]
    plugin: Any
    fields: Mapping[str, Written[Any]]
    span: Span


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """`[pipeline]`: the schedule plugin and the keys every schedule shares."""

    schedule: PluginTable
    microbatches: Written[int] | None = None
    subsequences: Written[int] | None = None
    chunks: Written[int] | None = None
    split: Written[str] | None = None
    span: Span


@dataclass(frozen=True, kw_only=True)
class Check:
    """One `[[check]]`: the tensors a pattern names are placed as said.

    `expect` maps an axis to "R", "S(i)" or "stored".
    """

    name: Written[str]
    tensor: Pattern
    expect: Mapping[str, Written[str]]
    span: Span
    tensor_span: Span | None = None


@dataclass(frozen=True, kw_only=True)
class Expect:
    """`[expect]`: promises. memory_per_rank in bytes; state_sharded is a share of 1."""

    memory_per_rank: Written[int] | None = None
    state_sharded: Written[float] | None = None


@dataclass(frozen=True, kw_only=True)
class Launch:
    """`[launch]`: how torchtitan is started."""

    recipe: Written[str] | None = None
    ranks: Written[int] | None = None
    overrides: Mapping[str, Written[Any]] = field(default_factory=dict)
    span: Span


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One spec, all files merged. Equal text gives an equal Spec.

    `machines` are those of `[topology.on]` that are not laid over it.
    """

    source: Source
    model: Written[str]
    mesh: tuple[AxisEntry, ...]
    mesh_span: Span
    sizes: Sizes | None = None
    precision: Precision = Precision()
    topology: Topology = Topology()
    rules: tuple[PlaceRule, ...] = ()
    store: Store | None = None
    recompute: Recompute | None = None
    uneven: tuple[Written[str], ...] = ()
    pipeline: Pipeline | None = None
    strategies: tuple[PluginTable, ...] = ()
    expect: Expect = Expect()
    checks: tuple[Check, ...] = ()
    launch: Launch | None = None
    machines: tuple[str, ...] = ()
