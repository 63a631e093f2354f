"""Which collectives a piece of code really issues, in the words of a Plan.

Every collective of torch.distributed passes through torch's dispatcher, whoever calls it:
a function of `torch.distributed`, a functional collective, DTensor, an autograd function or
an FSDP hook. So one dispatch mode sees them all, in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _resolve_process_group
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from ..mesh import Mesh
from ..plan.ir import Kind, Pass, Plan


@dataclass(frozen=True, kw_only=True)
class Issued:
    """One collective call of one rank.

    axis: as the plan writes it, or "?" and the ranks of a group that no axes span.
    bytes: of the whole tensor on the larger side, as in `plan.ir.Collective`.
    module: the innermost module that was running, "" outside of all.
    """

    kind: Kind
    axis: str
    pass_: Pass
    bytes: int
    dtype: str
    module: str


Counts = Counter[tuple[Kind, str, Pass, int]]
"""Calls by kind, axis, pass and bytes."""


@dataclass(kw_only=True)
class Issues:
    """The collectives recorded so far, in order; reads like a list."""

    calls: list[Issued] = field(default_factory=list)

    def counts(self) -> Counts:
        """The calls, to be held against a plan's list."""
        return Counter((call.kind, call.axis, call.pass_, call.bytes) for call in self.calls)


Groups = Mapping[tuple[int, ...], str]

PassOf = Callable[[str, Mapping[str, Any]], Pass]
"""(operator, arguments by name) -> the pass that a call belongs to."""


def axis_groups(mesh: Mesh, rank: int) -> Groups:
    """Ranks of each group that holds `rank` -> the axes that span it, "+" between several.

    Axes of one rank span nothing and are left out.
    """
    axes = [axis.name for axis in mesh.axes if axis.size > 1]
    found: dict[tuple[int, ...], str] = {}
    for length in range(1, len(axes) + 1):
        for chosen in combinations(axes, length):
            found[_span(mesh, rank, chosen)] = "+".join(chosen)
    return found


def plan_groups(plan: Plan, rank: int) -> Groups:
    """The groups of the plan's mesh, and the rings of its blocks: a part of an axis goes by the axis' name."""
    found = dict(axis_groups(plan.mesh, rank))
    blocks = plan.block
    if blocks is not None and 1 < blocks.context < blocks.size:
        along = plan.mesh.group(rank, blocks.axis)
        first = along.index(rank) // blocks.context * blocks.context
        found[tuple(along[first : first + blocks.context])] = blocks.axis
    return found


def _span(mesh: Mesh, rank: int, axes: Sequence[str]) -> tuple[int, ...]:
    ranks = {rank}
    for axis in axes:
        ranks = {other for member in ranks for other in mesh.group(member, axis)}
    return tuple(sorted(ranks))


@contextmanager
def count_collectives(
    groups: Groups, model: torch.nn.Module | None = None, pass_of: PassOf | None = None
) -> Iterator[Issues]:
    """Record every collective issued inside, except those of one rank with itself.

    Args:
        groups: names of groups by their ranks; see `axis_groups`.
        model: where given, each call is recorded with the module that was running.
        pass_of: tells the pass of a call by its operator and arguments; without it, autograd does.
    """
    issues = Issues()
    tracker = _ModuleNames(model) if model is not None else None
    try:
        with _Recorder(issues, groups, tracker or (lambda: ""), pass_of or current_pass):
            yield issues
    finally:
        if tracker is not None:
            tracker.close()


class _ModuleNames:
    """Says which module's forward is running."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._stack: list[str] = []
        self._handles: list[Any] = []
        for fqn, module in model.named_modules():
            self._handles.append(module.register_forward_pre_hook(self._enter(fqn), prepend=True))
            self._handles.append(module.register_forward_hook(self._leave, always_call=True))

    def __call__(self) -> str:
        return self._stack[-1] if self._stack else ""

    def _enter(self, fqn: str) -> Callable[..., None]:
        return lambda *_: self._stack.append(fqn)

    def _leave(self, *_: object) -> None:
        self._stack.pop()

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()


class _Recorder(TorchDispatchMode):
    def __init__(self, issues: Issues, groups: Groups, module: Callable[[], str], pass_of: PassOf) -> None:
        super().__init__()
        self._pass_of = pass_of
        self._issues = issues
        self._groups = groups
        self._module = module

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if DTensor in types:
            return NotImplemented  # DTensor goes first, so that what it issues by itself is seen here
        kwargs = kwargs or {}
        namespace, _, name = str(func.name()).partition("::")
        if namespace in ("c10d", "_c10d_functional", "_c10d_functional_autograd"):
            self._record(name.split(".")[0], func, args, kwargs)
        return func(*args, **kwargs)

    def _record(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if name in _SILENT:
            return
        if name not in _READ:
            raise NotImplementedError(f"collective {func.name()} is not known to the recorder")
        values = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)} | kwargs
        ranks = _ranks(values)
        if len(ranks) == 1:
            return
        kind, larger = _READ[name]
        axis = self._groups.get(tuple(sorted(ranks)), f"?{sorted(ranks)}")
        for tensor, factor in larger(values, len(ranks)):
            self._issues.calls.append(
                Issued(
                    kind=kind,
                    axis=axis,
                    pass_=self._pass_of(name, values),
                    bytes=tensor.numel() * tensor.element_size() * factor,
                    dtype=str(tensor.dtype).removeprefix("torch."),
                    module=self._module(),
                )
            )


def current_pass(name: str, values: Mapping[str, Any]) -> Pass:
    """The backward while autograd runs, the forward otherwise."""
    return "backward" if torch._C._current_graph_task_id() != -1 else "forward"


def _ranks(values: Mapping[str, Any]) -> list[int]:
    if "group_name" in values:
        name = values["group_name"]
        group = name if isinstance(name, dist.ProcessGroup) else _resolve_process_group(name)
    else:
        group = values["process_group"]
        if not isinstance(group, dist.ProcessGroup):
            group = dist.ProcessGroup.unbox(group)
    return dist.get_process_group_ranks(group)


Larger = Callable[[Mapping[str, Any], int], list[tuple[torch.Tensor, int]]]


def _own(*names: str) -> Larger:
    """The tensors of an argument, each a call of its own; the first of `names` that is there."""

    def read(values: Mapping[str, Any], size: int) -> list[tuple[torch.Tensor, int]]:
        return [(tensor, 1) for tensor in _flat(_first(values, names))]

    return read


def _times(*names: str) -> Larger:
    """The same, where the argument is the smaller side: one rank's part."""

    def read(values: Mapping[str, Any], size: int) -> list[tuple[torch.Tensor, int]]:
        return [(tensor, size) for tensor in _flat(_first(values, names))]

    return read


def _together(name: str) -> Larger:
    """The equal parts of an argument, all one call."""

    def read(values: Mapping[str, Any], size: int) -> list[tuple[torch.Tensor, int]]:
        parts = _flat(values[name])
        assert len({part.shape for part in parts}) == 1, "parts of different shapes"
        return [(parts[0], len(parts))]

    return read


def _first(values: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next(values[name] for name in names if name in values)


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for part in value for tensor in _flat(part)]


#: Calls that wait, meet, are no collective, or are the other end of a call that is counted.
_SILENT = ("wait_tensor", "barrier", "monitored_barrier_", "_wrap_tensor_autograd", "recv_", "recv_any_source_")

#: Operator name -> its kind, and where its larger side is found.
_READ: Mapping[str, tuple[Kind, Larger]] = {
    "allreduce_": ("all_reduce", _own("tensors")),
    "allreduce_coalesced_": ("all_reduce", _own("tensors")),
    "all_reduce": ("all_reduce", _own("input", "self")),
    "all_reduce_": ("all_reduce", _own("input", "self")),
    "all_reduce_coalesced": ("all_reduce", _own("inputs")),
    "all_reduce_coalesced_": ("all_reduce", _own("inputs")),
    "_allgather_base_": ("all_gather", _own("output_tensor")),
    "allgather_": ("all_gather", _times("input_tensors")),
    "allgather_coalesced_": ("all_gather", _times("input_list")),
    "allgather_into_tensor_coalesced_": ("all_gather", _own("outputs")),
    "all_gather_into_tensor": ("all_gather", _times("input")),
    "all_gather_into_tensor_out": ("all_gather", _times("input")),
    "all_gather_into_tensor_coalesced": ("all_gather", _times("inputs")),
    "_reduce_scatter_base_": ("reduce_scatter", _own("input_tensor")),
    "reduce_scatter_": ("reduce_scatter", _times("output_tensors")),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", _own("inputs")),
    "reduce_scatter_tensor": ("reduce_scatter", _own("input")),
    "reduce_scatter_tensor_out": ("reduce_scatter", _own("input")),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", _own("inputs")),
    "alltoall_": ("all_to_all", _together("input_tensors")),
    "alltoall_base_": ("all_to_all", _own("input")),
    "all_to_all_single": ("all_to_all", _own("input")),
    "send": ("send", _own("tensors")),
}
