"""Spec + Model -> Resolved: sizes known, names held against the model and the mesh, decisions against each other."""

from __future__ import annotations

from collections.abc import Iterable

from ..card.model import Model
from ..diagnostics import Bag
from ..language.spec import Spec, Written
from .decisions import CUTS, DECISIONS, Law
from .ir import Precision, RunSizes
from .mesh import inside_nodes, resolve_mesh
from .names import axes_known, names_known
from .resolved import Resolved, Rules
from .strategies import strategy_rules


def resolve(spec: Spec, model: Model, ranks: int | None, bag: Bag) -> Resolved | None:
    """The spec with sizes and names known, or None with all that cannot be in the bag."""
    mesh = resolve_mesh(spec, ranks, bag)
    rules = Rules(rules=(*spec.rules, *strategy_rules(spec, model)), whole=model.whole)
    names_known(spec, model, bag)
    axes_known(spec, bag)
    if mesh is None or len(bag):
        return None
    sizes, precision = _run_sizes(spec), _precision(spec)
    resolved = Resolved(spec=spec, model=model, mesh=mesh, sizes=sizes, precision=precision, rules=rules)
    inside_nodes(spec, mesh, bag)
    for laws in (DECISIONS, CUTS):
        _hold(laws, resolved, bag)
        if len(bag):
            return None
    return resolved


def _hold(laws: Iterable[Law], resolved: Resolved, bag: Bag) -> None:
    """Every law, on one layer of each kind; on all of them only to say where a law does not hold."""
    broken = Bag()
    for law in laws:
        law(resolved.folded, broken)
    for law in laws if len(broken) else ():
        law(resolved, bag)


def _run_sizes(spec: Spec) -> RunSizes:
    def value(written: Written[int] | None) -> int | None:
        return None if written is None else written.value

    if spec.sizes is None:
        return RunSizes()
    accumulation = value(spec.sizes.accumulation) or 1
    return RunSizes(batch=value(spec.sizes.batch), seq=value(spec.sizes.seq), accumulation=accumulation)


def _precision(spec: Spec) -> Precision:
    words = {"state": spec.precision.state, "compute": spec.precision.compute, "reduce": spec.precision.reduce}
    said = {key: word.value for key, word in words.items() if word is not None}
    return Precision(**said, written=tuple(said))
