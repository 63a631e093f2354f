"""One flavor of one card, written out: every tensor and module boundary of the model by name."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal

from ..source import Span

#: The factors of one tensor dim, outer first.
Factors = tuple[str, ...]

#: Dimensions of the run, not of the model: `[sizes]` has them.
RUN_SIZES = ("batch", "seq")


@dataclass(frozen=True, kw_only=True)
class TensorEntry:
    """A parameter or buffer.

    Attributes:
        module: the module that computes with it: the nearest one around it with a boundary and no
            other boundary inside; the one that holds it, when there is none such.
        span: of its dims. key: of the card's name for it.
        tied: other names of the same tensor.
    """

    fqn: str
    module: str
    kind: Literal["parameter", "buffer"]
    dims: tuple[Factors, ...]
    span: Span
    key: Span | None = None
    tied: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Every dimension name in it."""
        return frozenset(name for factors in self.dims for name in factors)


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """What crosses the boundary of a module: named inputs of its forward, one output.

    `whole` names the dimensions that the module computes over as a whole (a norm over its
    features): inside it, no axis may cut them. `whole_inputs` says the same of one input only, as
    (input, dimension): attention computes each query by itself, and looks over every key.

    `added` names the parameters in it that are added to what it computes, as a bias is: once, so
    that their gradients are no sums over an axis that cuts what it contracts.

    `made` names inputs that the model makes itself from the length of the sequence, alike on every
    rank, as positions are: no module gives them, so no axis has cut them.
    """

    module: str
    inputs: tuple[tuple[str, tuple[Factors, ...]], ...]
    output: tuple[Factors, ...] | None
    whole: tuple[str, ...]
    span: Span
    whole_inputs: tuple[tuple[str, str], ...] = ()
    added: tuple[str, ...] = ()
    made: tuple[str, ...] = ()

    def ports(self) -> tuple[tuple[str, tuple[Factors, ...]], ...]:
        """(port, dims) for each input and the output."""
        ins = tuple((f"input.{name}", dims) for name, dims in self.inputs)
        return ins if self.output is None else (*ins, ("output", self.output))


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The loss takes `logits`; when `vocab` is cut, it is made from parts of the vocabulary."""

    logits: tuple[Factors, ...]
    vocab: str


@dataclass(frozen=True, kw_only=True)
class SplitWord:
    """A word of a pipeline's split: the modules it stands for, in order; `counted` when numbers count them."""

    name: str
    modules: tuple[str, ...]
    counted: bool


@dataclass(frozen=True, kw_only=True)
class SavedEntry:
    """A value that a module's forward leaves for its backward, `count` times: as large as a port, or by its dims.

    dtype: None is the one that is computed in.
    """

    module: str
    port: str | None
    dims: tuple[Factors, ...]
    dtype: str | None
    count: int


Port = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Model:
    """A card with the sizes of one flavor filled in.

    Attributes:
        flow: (module, port) -> (module, port): the same value, handed on unchanged; what has to be
            redistributed between the two is redistributed at the first.
        same: dimension name -> the name of its class; names of a class count the same things.
        whole: names that are whole unless a spec says otherwise.
        units: modules whose parameters travel together when they are stored in parts.
        split: words of a pipeline's split, in the order that a value passes through their modules.
        saved: what forwards leave for their backwards; None where the card does not say.
    """

    name: str
    sizes: Mapping[str, int]
    tensors: tuple[TensorEntry, ...]
    boundaries: tuple[Boundary, ...]
    flow: Mapping[Port, Port]
    same: Mapping[str, str]
    whole: frozenset[str]
    units: tuple[tuple[str, ...], ...]
    loss: Loss | None
    span: Span
    split: tuple[SplitWord, ...] = ()
    saved: tuple[SavedEntry, ...] | None = None

    @cached_property
    def names(self) -> frozenset[str]:
        """Every dimension name that a rule may place."""
        tensors = {name for tensor in self.tensors for name in tensor.names}
        ports = {n for b in self.boundaries for _, dims in b.ports() for f in dims for n in f}
        return frozenset(tensors | ports)

    @cached_property
    def by_module(self) -> dict[str, Boundary]:
        """Boundaries by module fqn."""
        return {boundary.module: boundary for boundary in self.boundaries}

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """Fqns that a pattern may name: every module with a tensor or a boundary, and every tensor."""
        found = dict.fromkeys(b.module for b in self.boundaries)
        found.update(dict.fromkeys(t.module for t in self.tensors))
        found.update(dict.fromkeys(t.fqn for t in self.tensors))
        return tuple(found)

    @cached_property
    def held(self) -> dict[str, tuple[TensorEntry, ...]]:
        """Module fqn -> the tensors that it computes with, tied ones under each of their modules."""
        found: dict[str, list[TensorEntry]] = {}
        for tensor in self.tensors:
            for module in self.holders(tensor):
                found.setdefault(module, []).append(tensor)
        return {module: tuple(tensors) for module, tensors in found.items()}

    @cached_property
    def scopes(self) -> dict[str, str]:
        """Module with a boundary -> the nearest module around it with one; the root is ""."""
        return {module: around(module, self.by_module) or "" for module in self.by_module if module}

    @cached_property
    def leaves(self) -> frozenset[str]:
        """Modules with a boundary and none inside them."""
        return leaves(self.by_module)

    def holders(self, tensor: TensorEntry) -> tuple[str, ...]:
        """The modules that compute with a tensor, one for each of its names."""
        near = ((name, around(name, self.by_module)) for name in tensor.tied)
        return (tensor.module, *(m if m is not None and m in self.leaves else parent(name) for name, m in near))

    def size(self, factors: Factors) -> int:
        """Length of a dim: the product of its factors."""
        return prod(self.sizes[name] for name in factors)

    def kin(self, name: str) -> str:
        """The class of a name under `same`."""
        return self.same.get(name, name)


def parent(fqn: str) -> str:
    """The fqn without its last part; of a single part, the root ""."""
    return fqn.rpartition(".")[0]


def above(fqn: str) -> Iterator[str]:
    """Every module around one, the nearest first; the root "" is the last."""
    while fqn:
        fqn = parent(fqn)
        yield fqn


def around(fqn: str, known: Container[str]) -> str | None:
    """The nearest module above `fqn` that is known, or None; the root is ""."""
    while fqn:
        fqn = parent(fqn)
        if fqn in known:
            return fqn
    return None


def leaves(known: Collection[str]) -> frozenset[str]:
    """Those of the known modules that have none of the known inside them."""
    outer = {around(module, known) for module in known}
    return frozenset(module for module in known if module not in outer)
