"""What the values of forwards really take: the peak of live bytes, op by op.

Every tensor that an operator gives passes through torch's dispatcher. A storage that a forward makes, or
a recomputed forward in the backward, counts from then until nothing holds it: autograd, a variable, or a
buffer of the pipeline. Not counted are parameters, what FSDP gathers and reduces, gradients of any
kind, the batch itself, and what an operator needs inside.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .seams import seam

#: FSDP's turns around a module: what is made in them is weights and their gradients.
_FSDP = ("pre_forward", "post_forward", "pre_backward", "post_backward", "unshard", "wait_for_unshard", "reshard")


@dataclass(kw_only=True)
class Live:
    """Bytes of values that forwards have made and that are still there.

    Attributes:
        peak: the most there ever were.
        sizes: of each storage that is there.
        aside: how many of FSDP's turns are under way, in which nothing counts.
        again: how many recomputed forwards are, in which all counts, though it is in the backward.
    """

    bytes: int = 0
    peak: int = 0
    sizes: dict[int, int] = field(default_factory=dict)
    aside: int = 0
    again: int = 0

    def add(self, storage: torch.UntypedStorage) -> None:
        """Count a storage until it is gone."""
        key = storage._cdata
        if key in self.sizes or not storage.nbytes():
            return
        self.sizes[key] = storage.nbytes()
        self.bytes += storage.nbytes()
        weakref.finalize(storage, self.drop, key)
        self.peak = max(self.peak, self.bytes)

    def drop(self, key: int) -> None:
        """A storage is gone."""
        self.bytes -= self.sizes.pop(key)


@contextmanager
def live_values(models: Iterable[nn.Module]) -> Iterator[Live]:
    """Follow the values that the forwards of these models, and of their loss, make."""
    live = Live()
    handles: list[Any] = []
    wrapper, units = seam("CheckpointWrapper"), seam("FSDPParamGroup")
    wrapped: list[Any] = [module for model in models for module in model.modules() if isinstance(module, wrapper)]
    for module in wrapped:
        inner = module._checkpoint_wrapped_module
        handles.append(inner.register_forward_pre_hook(lambda *_: _more(live, "again", 1), prepend=True))
        handles.append(inner.register_forward_hook(lambda *_: _more(live, "again", -1), always_call=True))
    before = {name: getattr(units, name) for name in _FSDP}
    try:
        for name, method in before.items():
            setattr(units, name, _aside(live, method))
        with _Mode(live):
            yield live
    finally:
        for name, method in before.items():
            setattr(units, name, method)
        for handle in handles:
            handle.remove()


def _more(live: Live, name: str, step: int) -> None:
    setattr(live, name, getattr(live, name) + step)


def _aside(live: Live, method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose tensors are not counted."""

    def call(*args: Any, **kwargs: Any) -> Any:
        live.aside += 1
        try:
            return method(*args, **kwargs)
        finally:
            live.aside -= 1

    return call


class _Mode(TorchDispatchMode):
    def __init__(self, live: Live) -> None:
        super().__init__()
        self._live = live

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if DTensor in types:
            return NotImplemented
        before = {_key(tensor) for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, torch.Tensor)}
        found = func(*args, **(kwargs or {}))
        forward = torch._C._current_graph_task_id() == -1 or self._live.again
        if forward and not self._live.aside:
            for tensor in tree_leaves(found):
                if isinstance(tensor, torch.Tensor) and _key(tensor) not in before:
                    self._live.add(tensor.untyped_storage())
        return found


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
