"""The laws that every strategy and schedule passes, ours and anyone's.

    from meshlang.testing import contract

    CASES = [contract.Case(name="my_strategy", request=Request.of("my_strategy.toml", ranks=8))]

    @pytest.mark.parametrize(("law", "case"), contract.params(CASES))
    def test_contract(law, case):
        law(case)

A case is an installed name and a spec that uses it and has no findings. A law is a function of a
case that raises AssertionError; each says in its docstring what holds. None of them loads torch.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, nan
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ..compiler import Request, check, compile, load, resolved_of
from ..diagnostics import Diagnostic
from ..language import plugins
from ..language.spec import PluginTable, Spec
from ..pipeline.edges import receive_buffers
from ..pipeline.laws import program_problems
from ..plan.data import from_json, to_json
from ..plan.derive import start
from ..plan.ir import Kind, Pass, Plan
from ..plan.stages import program_of_plan
from ..strategy import Context, Schedule, Strategy


@dataclass(frozen=True)
class Case:
    """A plugin under its installed name, in a spec that uses it and has no findings.

    A case for which `check` finds something is no case: the law `has_no_findings` says so.
    """

    name: str
    request: Request

    @cached_property
    def spec(self) -> Spec:
        """The spec as written."""
        return load(self.request)

    @cached_property
    def table(self) -> PluginTable:
        """The plugin's table in the spec."""
        tables = list(self.spec.strategies)
        if self.spec.pipeline is not None:
            tables.append(self.spec.pipeline.schedule)
        found = [table for table in tables if table.name.value == self.name]
        assert found, f"{self.spec.source.name} has no table of `{self.name}`"
        return found[0]

    @property
    def plugin(self) -> Any:
        """The plugin as the spec's keys say."""
        return self.table.plugin

    def plan(self) -> Plan:
        """What the plugin is asked about, made anew: the plan before any strategy has rewritten it."""
        return start(resolved_of(self.spec, self.request))

    def context(self, plugin: Any = None) -> Context:
        """The plan before, and the table, with another plugin in it if one is given."""
        table = self.table if plugin is None else replace(self.table, plugin=plugin)
        return Context(plan=self.plan(), table=table)


Law = Callable[[Case], None]


def has_no_findings(case: Case) -> None:
    """The spec compiles: with the plugin in it, the plan passes every law of `plan.verify`."""
    found = check(case.request)
    assert not found, [f"{each.code}: {each.message}" for each in found]


def is_frozen_data(case: Case) -> None:
    """The class is a frozen dataclass, and every field is given by its name."""
    plugin = type(case.plugin)
    assert dataclasses.is_dataclass(plugin), f"{plugin.__name__} is no dataclass"
    parameters: Any = getattr(plugin, "__dataclass_params__")  # noqa: B009
    assert parameters.frozen, f"{plugin.__name__} is not frozen"
    positional = [field.name for field in dataclasses.fields(plugin) if field.init and not field.kw_only]
    assert not positional, f"{plugin.__name__}: {', '.join(positional)} can be given without a name"


def is_final(case: Case) -> None:
    """The class is derived from no other that could be used itself."""
    _, *bases = type(case.plugin).__mro__
    used = [base.__name__ for base in bases if issubclass(base, Strategy | Schedule) and not _is_abstract(base)]
    assert not used, f"{type(case.plugin).__name__} is derived from {', '.join(used)}, which can be used itself"


def _is_abstract(plugin: type) -> bool:
    return bool(getattr(plugin, "__abstractmethods__", ()))


def fields_are_keys(case: Case) -> None:
    """Each field has a type that TOML can spell, and is a key of the table."""
    loaded = plugins.load(_registry(case), case.name)
    fields = [field.name for field in dataclasses.fields(loaded.plugin)]
    assert sorted(fields) == sorted(loaded.table.keys), f"fields {fields}, keys {sorted(loaded.table.keys)}"


def _registry(case: Case) -> Any:
    both = case.request.plugins
    return both.strategies if isinstance(case.plugin, Strategy) else both.schedules


def has_an_axis(case: Case) -> None:
    """A strategy says in its field `axis` which axis it runs over; a wrong one is a finding."""
    assert isinstance(case.plugin.axis, str)
    stray = replace(case.plugin, axis="no such axis")
    assert list(stray.check(case.context(stray))), "an axis that the mesh lacks is no finding"


def checks_purely(case: Case) -> None:
    """`check` gives diagnostics, the same for the same plan, and leaves the plan as it was."""
    context = case.context()
    before = deepcopy(context.plan)
    first, second = list(case.plugin.check(context)), list(case.plugin.check(case.context()))
    assert all(isinstance(each, Diagnostic) for each in first), f"check gives {first}"
    assert first == second, "check found something else the second time"
    assert context.plan == before, "check changed the plan"


def applies_purely(case: Case) -> None:
    """`apply` gives equal plans for equal plans, changes none, and an equal plugin does the same."""
    plan = case.plan()
    before, twin = deepcopy(plan), replace(case.plugin)
    first = case.plugin.apply(plan)
    assert isinstance(first, Plan)
    assert plan == before, "apply changed its plan"
    assert case.plugin.apply(case.plan()) == first, "the second of two equal plans came out otherwise"
    assert twin == case.plugin
    assert twin.apply(plan) == first, "an equal plugin made another plan"


def keeps_the_model(case: Case) -> None:
    """`apply` keeps mesh, sizes and the model: each tensor's name, kind, global shape and ties."""
    before = case.plan()
    after = case.plugin.apply(before)
    kept = {_identity(tensor) for tensor in before.tensors} ^ {_identity(tensor) for tensor in after.tensors}
    lost = sorted({str(each[0]) for each in kept})
    assert not lost, f"apply changed what {', '.join(lost)} is"
    same = (after.model, after.mesh, after.sizes) == (before.model, before.mesh, before.sizes)
    assert same, "apply changed the model's name, the mesh or the sizes"


def _identity(tensor: Any) -> tuple[object, ...]:
    return tensor.fqn, tensor.kind, tensor.shape, tensor.tied, tuple(dim.names for dim in tensor.dims)


def sends_in_words(case: Case) -> None:
    """Each collective that `apply` adds is of a kind and a pass that plans know, over axes of the mesh."""
    before = case.plan()
    for call in case.plugin.apply(before).collectives:
        assert call.kind in get_args(Kind), f"`{call.kind}` is none of {', '.join(get_args(Kind))}"
        assert call.pass_ in get_args(Pass), f"`{call.pass_}` is none of {', '.join(get_args(Pass))}"
        lost = set(call.axis.split("+")) - set(before.mesh.names)
        assert not lost, f"the mesh has no axis {', '.join(sorted(lost))}"


def round_trips(case: Case) -> None:
    """from_json(to_json(plan)) == plan, and the plan says that the plugin is in it."""
    plan = compile(case.request)
    assert from_json(to_json(plan)) == plan, "the plan changes on its way through JSON"
    used = [use.name for use in plan.strategies] + ([plan.pipeline.schedule] if plan.pipeline is not None else [])
    assert case.name in used, f"the plan uses {used}"


def survives_nonsense(case: Case) -> None:
    """Fields of the right type and any value give findings or a plan, and never an exception.

    The class itself may refuse a value by ValueError, which the reader turns into a finding.
    """
    for key, value in nonsense(type(case.plugin)):
        try:
            stray = replace(case.plugin, **{key: value})
        except ValueError:
            continue
        try:
            found = list(stray.check(case.context(stray)))
            if not found and isinstance(stray, Strategy):
                stray.apply(case.plan())
        except Exception as error:
            message = f"{key} = {value!r} gives {type(error).__name__}: {error}"
            raise AssertionError(message) from error
        assert all(isinstance(each, Diagnostic) for each in found), f"{key} = {value!r}"


def nonsense(plugin: type) -> Iterator[tuple[str, object]]:
    """Field, value: every field with values of its type that hardly mean anything."""
    hints = get_type_hints(plugin)
    for field in dataclasses.fields(plugin):
        for value in _strange(hints[field.name]):
            yield field.name, value


_STRANGE: dict[object, tuple[object, ...]] = {
    str: ("", " ", "no such thing", "layers.[", "|", "\u2028"),
    int: (-1, 0, 1, 7, 2**62),
    float: (-1.0, 0.0, 1e300, nan, inf),
    bool: (False, True),
    type(None): (None,),
}


def _strange(hint: Any) -> tuple[object, ...]:
    if hint in _STRANGE:
        return _STRANGE[hint]
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) is tuple:
        each = _strange(get_args(hint)[0])
        return ((), *((value,) for value in each), each)
    return tuple(value for each in get_args(hint) for value in _strange(each))


def ranks_come_to_the_end(case: Case) -> None:
    """What the schedule says each rank does is complete, in an order that keys and gradients need, and ends."""
    program = program_of_plan(compile(case.request))
    if program is not None:
        found = program_problems(program, buffers=receive_buffers(program))
        assert not found, [each.message for each in found]


def loads_no_torch(case: Case) -> None:
    """The module of the class, imported by itself, loads neither torch nor torchtitan nor numpy."""
    heavy = ("torch", "torchtitan", "numpy")
    code = f"import {type(case.plugin).__module__}, sys; print(*(m for m in {heavy} if m in sys.modules))"
    path = [entry for entry in sys.path if entry]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stdout.split(), f"{type(case.plugin).__module__} loads {done.stdout.strip()}"


#: What holds of both kinds of plugin.
LAWS: tuple[Law, ...] = (
    has_no_findings,
    is_frozen_data,
    is_final,
    fields_are_keys,
    checks_purely,
    round_trips,
    survives_nonsense,
    loads_no_torch,
)

STRATEGY_LAWS: tuple[Law, ...] = (*LAWS, has_an_axis, applies_purely, keeps_the_model, sends_in_words)

SCHEDULE_LAWS: tuple[Law, ...] = (*LAWS, ranks_come_to_the_end)


def laws_of(case: Case) -> tuple[Law, ...]:
    """The laws for the kind of plugin that the case is about."""
    return STRATEGY_LAWS if isinstance(case.plugin, Strategy) else SCHEDULE_LAWS


def params(cases: Iterable[Case]) -> list[Any]:
    """(law, case) for `pytest.mark.parametrize`, each law of each case as `name-law`."""
    import pytest

    return [pytest.param(law, case, id=f"{case.name}-{law.__name__}") for case in cases for law in laws_of(case)]
