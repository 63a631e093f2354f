"""Laws of what is written beside the rules, and decides nothing: `uneven`, `except`, `[recompute]`, `[sizes]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..diagnostics import Bag
from . import findings

if TYPE_CHECKING:
    from .resolved import Resolved


def allowances_used(resolved: Resolved, bag: Bag) -> None:
    """Every name that may be uneven is cut by a rule, or may be by a strategy."""
    cut = {rule.name for rule in resolved.spec.rules if rule.axes}
    for word in () if resolved.spec.strategies else resolved.spec.uneven:
        if word.value not in cut:
            bag.add(findings.never_cut(word))


def exceptions_used(resolved: Resolved, bag: Bag) -> None:
    """Every pattern of `except` leaves out something that the others do not, and not everything."""
    store = resolved.spec.store
    if store is None:
        return
    parameters = {t.fqn: (t.fqn, *t.tied) for t in resolved.model.tensors if t.kind == "parameter"}
    covered = [{fqn for fqn in parameters if any(map(each.covers, parameters[fqn]))} for each in store.exceptions]
    for index in reversed(range(len(covered))):
        others = set[str]().union(*covered[:index], *covered[index + 1 :])
        if covered[index] <= others:
            bag.add(findings.excepted_twice(store, index))
            covered[index] = set()
    if parameters and parameters.keys() == set[str]().union(*covered):
        bag.add(findings.nothing_stored(store))


def recomputing_used(resolved: Resolved, bag: Bag) -> None:
    """Every pattern of `[recompute]` names a module that none of the others has around or in what it names."""
    table = resolved.spec.recompute
    if table is None:
        return
    if not table.modules:
        bag.add(findings.nothing_recomputed(table))
    modules = [module for module in resolved.model.by_module if module]
    covered = [{module for module in modules if each.covers(module)} for each in table.modules]
    for index in reversed(range(len(covered))):
        others = set[str]().union(*covered[:index], *covered[index + 1 :])
        if covered[index] <= others:
            bag.add(findings.recomputed_twice(table, index))
            covered[index] = set()


def sizes_used(resolved: Resolved, bag: Bag) -> None:
    """A length of sequences is given only where some value of the model has a sequence."""
    sizes, model = resolved.spec.sizes, resolved.model
    if sizes is not None and sizes.seq is not None and "seq" not in model.names:
        bag.add(findings.no_sequence(sizes.seq, model))
