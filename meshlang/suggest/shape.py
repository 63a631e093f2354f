"""What a card says of how its model may be cut: which names an axis over weights takes, where layers repeat."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

from ..card.model import Factors, Model, parent
from ..fold import template
from ..plan.balance import balanced

#: Names that an axis over weights cuts: those of the preset `tensor_parallel`.
TENSOR = ("heads", "kv_heads", "mlp", "vocab")
#: Rows of a model that sees a sequence twice, clean and corrupted.
STREAMS = ("seq", "stream")
#: Layers that are left of a model when its plan is made to be counted up.
FEW = 2


@dataclass(frozen=True)
class Shape:
    """One flavor of a card, asked about its cuts."""

    model: Model

    @cached_property
    def _dims(self) -> tuple[Factors, ...]:
        """Every dim of a tensor or a value."""
        tensors = [factors for tensor in self.model.tensors for factors in tensor.dims]
        return (*tensors, *(f for b in self.model.boundaries for _, dims in b.ports() for f in dims))

    @cached_property
    def _inner(self) -> frozenset[str]:
        """Names that are somewhere an inner factor, with all that count the same: no axis cuts them there."""
        kin = {self.model.kin(name) for factors in self._dims for name in factors[1:] if name in TENSOR}
        return frozenset(name for name in self.model.names if self.model.kin(name) in kin)

    @cached_property
    def cut(self) -> tuple[str, ...]:
        """Names that an axis over weights cuts."""
        return tuple(name for name in TENSOR if name in self.model.names and name not in self._inner)

    @cached_property
    def whole(self) -> tuple[str, ...]:
        """Names that the card leaves to a spec, and that nothing cuts."""
        outer = {factors[0] for factors in self._dims}
        return tuple(sorted(outer - self.model.whole - set(self.cut)))

    @property
    def streams(self) -> bool:
        """Whether the model denoises blocks beside a clean copy of the text."""
        return STREAMS in self._dims

    def runs(self, name: str) -> bool:
        """Whether a name of the run is there and can be cut."""
        return name in self.model.names and name not in {n for factors in self._dims for n in factors[1:]}

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """The modules that are repeated most often, among those whose weights travel together."""
        single = [unit[0] for unit in self.model.units if len(unit) == 1]
        counts = Counter(template(name) for name in single)
        most = max(counts, key=lambda name: counts[name], default="")
        return tuple(name for name in single if template(name) == most) if counts[most] > 1 else ()

    @property
    def layer(self) -> str:
        """The pattern of all layers; "" where none are alike."""
        return template(self.layers[0]) if self.layers else ""

    @cached_property
    def parts(self) -> int:
        """Modules that a pipeline can share out; 0 where the card does not say, or ties weights of several."""
        if any(tensor.tied for tensor in self.model.tensors):
            return 0
        return sum(len(word.modules) for word in self.model.split)

    @cached_property
    def _stages(self) -> dict[int, tuple[tuple[str, ...], ...]]:
        return {}

    def stages(self, count: int) -> tuple[tuple[str, ...], ...]:
        """The modules of each of `count` stages, as the compiler shares them out where a spec does not say."""
        if count not in self._stages:
            self._stages[count] = balanced(self.model, count)
        return self._stages[count]

    def split(self, count: int) -> str:
        """The same in the card's words."""
        word_of = {module: word for word in self.model.split for module in word.modules}
        parts: list[str] = []
        for modules in self.stages(count):
            words = dict.fromkeys(word_of[module] for module in modules)
            counted = sum(word_of[module].counted for module in modules)
            parts.append(" + ".join(str(counted) if word.counted else word.name for word in words))
        return " | ".join(parts)

    @cached_property
    def gathered(self) -> tuple[str, ...]:
        """Patterns of modules that need the whole sequence where their weights are cut in other names."""
        cut = {tensor.module for tensor in self.model.tensors if set(self.cut) & {f[0] for f in tensor.dims}}
        tied = {parent(name) for tensor in self.model.tensors if tensor.module in cut for name in tensor.tied}
        layers = set(self.layers)
        tops = (self._below(module, layers) for module in self.model.by_module if module in cut | tied)
        return tuple(dict.fromkeys(template(top) for top in tops))

    def _below(self, module: str, layers: set[str]) -> str:
        """The outermost module around one that is not a layer, and lies in the same layer if in any."""
        top = module
        while (above := parent(top)) and above not in layers:
            top = above
        return top

    @cached_property
    def few(self) -> Shape:
        """The same model with few layers: a plan of it is made in no time, and counted up."""
        gone = self.layers[FEW:]
        if not gone:
            return self

        def stays(fqn: str) -> bool:
            return not any(fqn == layer or fqn.startswith(f"{layer}.") for layer in gone)

        model = self.model
        split = (replace(word, modules=tuple(filter(stays, word.modules))) for word in model.split)
        return Shape(
            replace(
                model,
                tensors=tuple(tensor for tensor in model.tensors if stays(tensor.fqn)),
                boundaries=tuple(each for each in model.boundaries if stays(each.module)),
                flow={a: b for a, b in model.flow.items() if stays(a[0]) and stays(b[0])},
                units=tuple(unit for unit in model.units if all(map(stays, unit))),
                split=tuple(split),
                saved=None if model.saved is None else tuple(s for s in model.saved if stays(s.module)),
            )
        )
