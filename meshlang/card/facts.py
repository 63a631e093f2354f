"""What a real model holds, as plain data: the other side of a card. Made by `runtime.cards`, without torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class TensorFact:
    """A parameter or buffer under one of its names; `tied` has the others."""

    fqn: str
    kind: Literal["parameter", "buffer"]
    shape: tuple[int, ...]
    tied: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ModuleFact:
    """A module.

    Attributes:
        kind: the name of its class.
        inputs: arguments of its forward that may be given by name, in order.
        required: those of them without a default.
        open: its forward takes any further name.
        numbers: whole numbers among its attributes, such as `n_heads`.
        config: whole numbers among the attributes of its `config`, where it keeps one.
    """

    kind: str
    inputs: tuple[str, ...]
    required: tuple[str, ...]
    open: bool = False
    numbers: Mapping[str, int]
    config: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A whole model: every name of every tensor, and every module by its fqn, the root as ""."""

    tensors: tuple[TensorFact, ...]
    modules: Mapping[str, ModuleFact]

    @property
    def by_fqn(self) -> dict[str, TensorFact]:
        """Tensors by name."""
        return {tensor.fqn: tensor for tensor in self.tensors}
