"""What the modules of a plan compute in one pass, on the fullest rank: products, attention, bytes touched.

A module with no module inside spans the space of the names of its inputs, its weights and its output. One whose
weights share with its input a dim that its output lacks multiplies and adds once at each point of that space: 2
operations. Attention multiplies queries with keys, and what comes of it with values: 4 operations for each
number of its output and each key that a query sees, half of the sequence under a causal mask; in block diffusion the
plan's own count of pairs. (Narayanan et al. 2021, appendix; attention over half the keys.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from math import prod

from ..plan.cost import StageValues
from ..plan.ir import Edge, Plan, Tensor


@dataclass(frozen=True, kw_only=True)
class Work:
    """Of some modules in one pass; `again` is what runs again in the backward.

    products, attention: operations. touched: bytes of the values that a forward leaves.
    """

    products: float = 0.0
    attention: float = 0.0
    touched: float = 0.0
    again_products: float = 0.0
    again_attention: float = 0.0
    again_touched: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(**{name: getattr(self, name) + getattr(other, name) for name in _FIELDS})

    def __mul__(self, times: float) -> Work:
        return Work(**{name: getattr(self, name) * times for name in _FIELDS})

    def twice(self) -> Work:
        """The same, with all of its forward again in the backward."""
        return replace(self, again_products=self.products, again_attention=self.attention, again_touched=self.touched)


_FIELDS = tuple(Work.__dataclass_fields__)


def works(plan: Plan) -> dict[str, Work]:
    """Module with none inside -> its work."""
    tensors: dict[str, list[Tensor]] = {}
    for tensor in plan.tensors:
        for name in (tensor.fqn, *tensor.tied) if tensor.kind == "parameter" else ():
            tensors.setdefault(name.rpartition(".")[0], []).append(tensor)
    edges, again = plan.edges_of, frozenset(plan.recompute)
    touched = dict.fromkeys(edges, 0)
    values = StageValues(plan, None, Fraction(1, plan.slices))
    for each in plan.saved:
        touched[each.module] = touched.get(each.module, 0) + each.count * values.bytes(each)
    found = {}
    for module in {**edges, **touched}:
        products = sum(_product(plan, edges.get(module, ()), tensor) for tensor in tensors.get(module, ()))
        attention = _attention(plan, edges.get(module, ()))
        done = Work(products=products, attention=attention, touched=float(touched.get(module, 0)))
        if done != Work():
            found[module] = done.twice() if _within(module, again) else done
    return _with_loss(found, plan)


def _within(module: str, known: Set[str]) -> bool:
    """Whether a module, or one around it, is known."""
    while module and module not in known:
        module = module.rpartition(".")[0]
    return bool(module)


def _with_loss(found: dict[str, Work], plan: Plan) -> dict[str, Work]:
    """The loss touches its logits and their logarithms; it stands with the model's last module."""
    values = StageValues(plan, plan.stages[-1] if plan.stages else None, Fraction(1, plan.slices))
    if values.log_probabilities and values.tops:
        last = values.tops[-1]
        found[last] = found.get(last, Work()) + Work(touched=float(values.log_probabilities))
    return found


def _local(plan: Plan, edge: Edge) -> dict[tuple[str, ...], float]:
    """Names of each dim -> its length on one rank in one pass, on the module's side."""
    layout = edge.src if edge.port == "output" else edge.dst
    found: dict[tuple[str, ...], float] = {}
    for names, size, axes in zip(edge.names, edge.shape, layout.dims, strict=True):
        parts = plan.mesh.product(axes) * {"batch": plan.batches, "seq": plan.slices}.get(names[0], 1)
        found[names] = min(found.get(names, size or 0), (size or 0) / parts)
    return found


def _product(plan: Plan, edges: Sequence[Edge], tensor: Tensor) -> float:
    """Twice the points of the space of a weight that is multiplied with; 0 of a norm, a bias or a table."""
    ours = {dim.names: dim.size / plan.mesh.product(dim.axes) for dim in tensor.dims}
    taken = [_local(plan, edge) for edge in edges if edge.port != "output"]
    given = next((_local(plan, edge) for edge in edges if edge.port == "output"), {})
    if not any(names in port and names not in given for names in ours for port in taken):
        return 0.0
    return 2.0 * prod(reduce(_least, (*taken, given), ours).values())


def _least(space: dict[tuple[str, ...], float], port: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    return {**space, **{names: min(size, space.get(names, size)) for names, size in port.items()}}


def _attention(plan: Plan, edges: Sequence[Edge]) -> float:
    """Of a module that looks over a whole sequence."""
    keys = [edge for edge in edges if "seq" in edge.whole]
    output = next((edge for edge in edges if edge.port == "output"), None)
    if not keys or output is None:
        return 0.0
    mine = _local(plan, output)
    if plan.block is not None:
        wide = prod(size for names, size in mine.items() if names[0] not in ("batch", "seq"))
        sequences = (plan.sizes.batch or 0) / plan.mesh.product(plan.axes_of("data")) / plan.batches
        return 4.0 * max(plan.block.pairs) * wide * sequences / plan.slices
    seen = max(_sequence(keys)) / 2
    return 4.0 * prod(mine.values()) * seen


def _sequence(edges: Sequence[Edge]) -> Iterator[int]:
    """Lengths of whole sequences."""
    yield from (
        size or 0 for edge in edges for names, size in zip(edge.names, edge.shape, strict=True) if names[0] == "seq"
    )
