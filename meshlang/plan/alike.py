"""Layers that are alike: what holds for one of them holds for all, so it is worked out once.

Two layers are alike when everything in them has the same dims, the same flow and the same rules.
An exception for one layer, and that layer is alike to no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..card.model import Boundary, Model, Port


@dataclass(frozen=True)
class Alike:
    """A model whose layers are compared.

    Args:
        model: the whole one.
        covering: the rules that hold inside an fqn; the same objects where they are the same rules.
    """

    model: Model
    covering: Callable[[str], tuple[object, ...]]
    _sources: dict[Port, Port] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sources", {second: first for first, second in self.model.flow.items()})

    def stand_ins(self) -> dict[str, str]:
        """Fqn of each module and tensor -> that of the same thing in the first layer that is alike."""
        names: dict[str, list[str]] = {}
        facts: dict[str, list[tuple[object, ...]]] = {}
        for fqn, said in self._entries():
            layer = layer_of(fqn)
            names.setdefault(layer, []).append(fqn)
            facts.setdefault(layer, []).append((fqn[len(layer) :], *said, *map(id, self.covering(fqn))))
        firsts: dict[tuple[object, ...], str] = {}
        found: dict[str, str] = {}
        for layer, said in facts.items():
            first = firsts.setdefault((_series(layer), *said), layer)
            found.update((fqn, first + fqn[len(layer) :]) for fqn in names[layer])
        return found

    def _entries(self) -> Iterator[tuple[str, tuple[object, ...]]]:
        """Each fqn with all that a card says of it, names of its own layer without the number."""
        for boundary in self.model.boundaries:
            said = (boundary.inputs, boundary.output, boundary.whole, boundary.whole_inputs)
            yield boundary.module, (*said, boundary.added, boundary.made, *self._flow(boundary))
        for tensor in self.model.tensors:
            yield tensor.fqn, (tensor.kind, tensor.dims, tensor.tied, _from(tensor.fqn, tensor.module))

    def _flow(self, boundary: Boundary) -> Iterator[object]:
        """Where each port's value goes on to, and where it is from."""
        for port, _ in boundary.ports():
            for way in (self.model.flow, self._sources):
                other = way.get((boundary.module, port))
                yield other and (_from(boundary.module, other[0]), other[1])


def layer_of(fqn: str) -> str:
    """`layers.3` for `layers.3.attention.wo`; what is in no layer stands by itself."""
    parts = fqn.split(".")
    for position, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[: position + 1])
    return fqn


def _series(layer: str) -> str:
    """`layers` for `layers.3`: only layers of one series are compared."""
    series, _, number = layer.rpartition(".")
    return series if number.isdigit() else layer


def _from(here: str, fqn: str) -> str:
    """An fqn as it is seen from `here`: in the same layer, without the layer's name."""
    layer = layer_of(here)
    return fqn[len(layer) :] if layer_of(fqn) == layer else f"/{fqn}"


def folded(model: Model, stand_in: Mapping[str, str]) -> Model:
    """The model with one layer of each kind: what is in it stands for itself."""

    def kept(fqn: str) -> bool:
        return stand_in[fqn] == fqn

    return replace(
        model,
        tensors=tuple(tensor for tensor in model.tensors if kept(tensor.fqn)),
        boundaries=tuple(boundary for boundary in model.boundaries if kept(boundary.module)),
        flow={one: other for one, other in model.flow.items() if kept(one[0]) and kept(other[0])},
    )
