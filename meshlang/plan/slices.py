"""Subsequences of a plan: which part of a sequence each is, and lengths that take equally long.

Work is counted in multiply-adds of a forward. A weight multiplies once a token with each of its numbers,
and a table that is only looked up in with none (Kaplan et al. 2020, arXiv 2001.08361, section 2.1). A query
and a key that it sees multiply once with each number of the query, and once with each number of the
value that is then added (FlashAttention-2, arXiv 2307.08691, section 4.1: 4 flops a pair and number of a
head, and half of the pairs under a causal mask). So the tokens [0, x S) of a sequence of S tokens take

    x S N + x^2 S^2 / 2 A      N multiply-adds a token in weights, A a pair in all attention of the model

and its share of attention is a = S A / (2 N + S A). Documents packed into a sequence see fewer pairs;
a plan does not know of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from math import prod

from ..pipeline.costs import Costs, bounds, cut
from .ir import Edge, Plan


def lengths_of(plan: Plan) -> tuple[int, ...]:
    """Tokens of each subsequence; () where sequences run whole, or their tokens are not known."""
    return plan.pipeline.lengths if plan.pipeline is not None and plan.slices > 1 else ()


def unequal(plan: Plan) -> bool:
    """Whether subsequences differ in their tokens."""
    return len(set(lengths_of(plan))) > 1


def shares(plan: Plan) -> tuple[Fraction, ...]:
    """Of a sequence's tokens in each of its subsequences; 1 of whole sequences."""
    known = lengths_of(plan)
    if not known:
        return (Fraction(1, plan.slices),) * plan.slices
    return tuple(Fraction(tokens, sum(known)) for tokens in known)


def alike(plan: Plan) -> tuple[tuple[Fraction, int], ...]:
    """(share, how many subsequences have it), in the order of the first of each."""
    return tuple(Counter(shares(plan)).items())


def equal_flops(plan: Plan, count: int, multiple: int) -> tuple[int, ...]:
    """Tokens of `count` subsequences whose forwards take equally long, each rounded to a multiple."""
    seq = plan.sizes.seq
    assert seq is not None
    ends = cut(seq, bounds(count, attention_share(plan), "flops"), multiple)
    return tuple(b - a for a, b in pairwise(ends))


def costs_of(plan: Plan) -> Costs:
    """Forward 1 and backward 2; where subsequences differ, with their lengths and the model's share of attention."""
    return Costs(lengths=lengths_of(plan), attention=attention_share(plan)) if unequal(plan) else Costs()


def attention_share(plan: Plan) -> float:
    """Share of a whole sequence's forward that is attention, in multiply-adds; 0 without `[sizes]` seq."""
    pairs = sum(_a_pair(plan)) * (plan.sizes.seq or 0) / 2
    return pairs / (pairs + sum(_a_token(plan))) if pairs else 0.0


def _a_token(plan: Plan) -> Iterator[int]:
    """Multiply-adds of each weight for one token."""
    taken: dict[str, set[str]] = {}
    for edge in plan.edges:
        if edge.port != "output":
            taken.setdefault(edge.module, set()).update(name for names in edge.names for name in names)
    for tensor in plan.tensors:
        names = {name for dim in tensor.dims for name in dim.names}
        for fqn in (tensor.fqn, *tensor.tied):
            inputs = taken.get(fqn.rpartition(".")[0])
            if tensor.kind == "parameter" and (inputs is None or inputs & names):
                yield prod(tensor.shape)


def _a_pair(plan: Plan) -> Iterator[int]:
    """Multiply-adds of each attention for one query and one key: numbers of a query, and of what it becomes."""
    for module in dict.fromkeys(edge.module for edge in plan.edges if "seq" in edge.whole):
        mine = [edge for edge in plan.edges if edge.module == module]
        yield from (_width(edge) for edge in mine if ("seq",) in edge.names and "seq" not in edge.whole)


def _width(edge: Edge) -> int:
    """Numbers of a value for one token."""
    sizes = zip(edge.names, edge.shape, strict=True)
    return prod(size or 1 for names, size in sizes if names not in (("batch",), ("seq",)))
