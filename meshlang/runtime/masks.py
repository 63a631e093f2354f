"""Modules that must see a mask, and modules that compute out of the type checker's sight."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import spmd_types as spmd
from torch import nn
from torchtitan.models.common.attention import FlexAttention

from ..lowering.errors import LoweringError
from ..plan.ir import Plan
from ..plan.launchable import parts


def masked(plan: Plan, model: nn.Module) -> None:
    """Nothing, when all that looks over a cut sequence is told by a mask which tokens it has.

    Attention that is causal by itself takes a rank's tokens for the first ones of the sequence,
    and gives wrong results without an error.

    Raises:
        LoweringError: with each module that takes no mask.
    """
    cut = set(parts(plan)["cp"])
    looking = {edge.module for edge in plan.edges if "seq" in edge.whole} if cut else set()
    wrong = [name for name in sorted(looking) if not isinstance(model.get_submodule(name), FlexAttention)]
    if wrong:
        kinds = {type(model.get_submodule(name)).__name__ for name in wrong}
        raise LoweringError(
            [f"{', '.join(wrong)}: under context parallelism attention must be a FlexAttention, not {', '.join(kinds)}"]
        )


def untyped(modules: Iterable[nn.Module]) -> None:
    """What strategies have put into these modules runs without type checks: the plan says what comes out."""
    for module in modules:
        module.forward = _unchecked(module.forward)


def _unchecked(forward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        with spmd.no_typecheck():
            return forward(*args, **kwargs)

    return run
