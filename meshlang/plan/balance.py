"""Stages of about equal cost.

The cost of a module is the multiply-adds of its weights for one token: a matrix multiplies with
each of its numbers once, a table that is only looked up in multiplies with none. The products of
attention over the sequence are left out: every layer has the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import inf

from ..card.model import Model, TensorEntry


def balanced(model: Model, count: int) -> tuple[tuple[str, ...], ...]:
    """The modules of a model's split in `count` stages; () when there are fewer modules than stages.

    The dearest stage is as cheap as can be; of splits alike in that, the one whose costs differ
    least (by the sum of their squares), and of these the one with the longest first stages.
    """
    names = [module for word in model.split for module in word.modules]
    if not 1 <= count <= len(names):
        return ()
    ends = _ends(costs(model, names), count)
    return tuple(tuple(names[start:end]) for start, end in zip([0, *ends], ends, strict=False))


def costs(model: Model, modules: Sequence[str]) -> list[int]:
    """Multiply-adds a token of each module."""
    found = dict.fromkeys(modules, 0)
    for tensor in model.tensors:
        owner = next((module for module in modules if tensor.fqn.startswith(f"{module}.")), None)
        if owner is not None and tensor.kind == "parameter" and _multiplies(tensor, model):
            size = 1
            for factors in tensor.dims:
                size *= model.size(factors)
            found[owner] += size
    return list(found.values())


def _multiplies(tensor: TensorEntry, model: Model) -> bool:
    """False for a table that is looked up in: no input of its module has a dim of it."""
    boundary = model.by_module.get(tensor.module)
    if boundary is None:
        return True
    taken = {name for _, dims in boundary.inputs for factors in dims for name in factors}
    return bool(taken & tensor.names)


def _ends(cost: Sequence[int], count: int) -> list[int]:
    """For each of `count` parts in a row the index past its last, by dynamic programming."""
    before = [0, *accumulate(cost)]
    total = len(cost)
    # best[i]: (dearest part, sum of squares, ends) of the first i modules in as many parts as so far.
    best: list[tuple[float, float, tuple[int, ...]]] = [(0, 0, ()), *[(inf, inf, ())] * total]
    for part in range(1, count + 1):
        last = count - part
        best = [
            min(
                (_joined(best[start], before[end] - before[start], end) for start in range(end)),
                key=lambda found: (found[0], found[1], [-each for each in found[2]]),
                default=(inf, inf, ()),
            )
            if part <= end <= total - last
            else (inf, inf, ())
            for end in range(total + 1)
        ]
    return list(best[total][2])


def _joined(found: tuple[float, float, tuple[int, ...]], cost: int, end: int) -> tuple[float, float, tuple[int, ...]]:
    dearest, squares, ends = found
    return max(dearest, cost), squares + cost * cost, (*ends, end)
