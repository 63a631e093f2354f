"""Each law of the plugin contract fails a plugin that breaks it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from meshlang.compiler import Request
from meshlang.language import plugins
from meshlang.registry import PluginError, Plugins, Registry
from meshlang.source import Source
from meshlang.strategy import Collective, Context, Diagnostic, Plan, Strategy
from meshlang.testing import contract

CARD = Path(__file__).parents[2] / "models" / "llama" / "card.toml"

SPEC = f"""\
meshlang = 1
model = "{CARD}#tiny"
include = ["preset:fsdp", "preset:whole_weights"]

[mesh]
dp = 2

[strategy.tried]
axis = "dp"
"""


def _unknown_axis(axis: str, context: Context) -> list[Diagnostic]:
    if axis in context.plan.mesh.names:
        return []
    return [context.finding("unknown-axis", f"`{axis}` is no axis", key="axis")]


@dataclass(frozen=True, kw_only=True)
class Good(Strategy):
    """Keeps the gathered weights of every unit."""

    axis: str
    times: int = 1
    share: float = 0.5
    names: tuple[str, ...] = ()
    mode: Literal["a", "b"] = "a"
    maybe: bool | None = None

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """The axis is there."""
        return _unknown_axis(self.axis, context)

    def apply(self, plan: Plan) -> Plan:
        """Every unit is kept."""
        return replace(plan, units=tuple(replace(unit, after_forward="keep") for unit in plan.units))


@dataclass(frozen=True, kw_only=True)
class _Base(Strategy):
    axis: str

    def check(self, context: Context) -> Iterable[Diagnostic]:
        return _unknown_axis(self.axis, context)


@dataclass(frozen=True, kw_only=True)
class Unlawful(_Base):
    """Leaves a sum that nobody finishes."""

    def apply(self, plan: Plan) -> Plan:
        """See the class."""

        def broken(edge: Any) -> Any:
            return replace(edge, dst=replace(edge.dst, dims=((),) * len(edge.dst.dims), partial=("dp",)))

        return replace(plan, edges=tuple(map(broken, plan.edges)))


@dataclass(kw_only=True, unsafe_hash=True)
class Thawed(Strategy):
    """Is not frozen."""

    axis: str

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """As every strategy."""
        return _unknown_axis(self.axis, context)

    def apply(self, plan: Plan) -> Plan:
        """As every strategy."""
        return plan


@dataclass(frozen=True)
class Positional(_Base):
    """Takes a field without its name."""

    times: int = 1

    def apply(self, plan: Plan) -> Plan:
        """As every strategy."""
        return plan


@dataclass(frozen=True, kw_only=True)
class Derived(Good):
    """Is derived from a strategy that can be used itself."""


@dataclass(frozen=True, kw_only=True)
class AnyAxis(_Base):
    """Says nothing of an axis that is not there."""

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """See the class."""
        return []

    def apply(self, plan: Plan) -> Plan:
        """As every strategy."""
        return plan


CALLS: list[int] = []


@dataclass(frozen=True, kw_only=True)
class Moody(_Base):
    """Finds something every other time."""

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """See the class."""
        CALLS.append(1)
        return [] if len(CALLS) % 2 else _unknown_axis("", context)

    def apply(self, plan: Plan) -> Plan:
        """As every strategy."""
        return plan


@dataclass(frozen=True, kw_only=True)
class Counting(_Base):
    """Makes another plan each time."""

    def apply(self, plan: Plan) -> Plan:
        """See the class."""
        CALLS.append(1)
        return replace(plan, units=plan.units[: len(CALLS) % 2 + 1])


@dataclass(frozen=True, kw_only=True)
class Meddling(_Base):
    """Writes into the plan that it was given."""

    def apply(self, plan: Plan) -> Plan:
        """See the class."""
        object.__setattr__(plan, "model", "mine")
        return plan


@dataclass(frozen=True, kw_only=True)
class Hyphened(Good):
    """Sends what no plan has a word for."""

    def apply(self, plan: Plan) -> Plan:
        """A call of an unknown kind."""
        call = Collective(kind="all-gather", axis="dp", where="w", pass_="forward", bytes=1, count=1)  # pyright: ignore[reportArgumentType]
        return replace(plan, collectives=(*plan.collectives, call))


@dataclass(frozen=True, kw_only=True)
class Reshaping(_Base):
    """Changes what the model is."""

    def apply(self, plan: Plan) -> Plan:
        """See the class."""
        first, *others = plan.tensors
        half = replace(first.dims[0], size=first.dims[0].size // 2, units=first.dims[0].units // 2)
        return replace(plan, tensors=(replace(first, dims=(half, *first.dims[1:])), *others))


@dataclass(frozen=True, kw_only=True)
class Forgetting(_Base):
    """Puts what JSON has no word for into the plan."""

    def apply(self, plan: Plan) -> Plan:
        """See the class."""
        return replace(plan, model=("a", "b"))  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, kw_only=True)
class Raising(_Base):
    """Raises on a number that means nothing."""

    times: int = 1

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """See the class."""
        found = _unknown_axis(self.axis, context)
        return found if 8 // self.times else []

    def apply(self, plan: Plan) -> Plan:
        """As every strategy."""
        return plan


@dataclass(frozen=True, kw_only=True)
class Untyped(_Base):
    """Has a field that TOML cannot spell."""

    how: dict[str, int] | None = None

    def apply(self, plan: Plan) -> Plan:
        """As every strategy."""
        return plan


def _case(plugin: type[Any]) -> contract.Case:
    tried = Plugins(strategies=Registry("meshlang.strategies", extra={"tried": plugin}))
    return contract.Case(name="tried", request=Request(source=Source(name="s.toml", text=SPEC), plugins=tried))


@pytest.mark.parametrize("law", contract.STRATEGY_LAWS, ids=lambda law: law.__name__)
def test_a_good_strategy_passes(law: contract.Law) -> None:
    """A strategy with a field of every type passes every law."""
    law(_case(Good))


BROKEN = [
    (contract.has_no_findings, Unlawful, "unfinished-sum"),
    (contract.is_frozen_data, Thawed, "Thawed is not frozen"),
    (contract.is_frozen_data, Positional, "Positional: times can be given without a name"),
    (contract.is_final, Derived, "Derived is derived from Good"),
    (contract.has_an_axis, AnyAxis, "is no finding"),
    (contract.checks_purely, Moody, "something else the second time"),
    (contract.applies_purely, Counting, "the second of two equal plans"),
    (contract.applies_purely, Meddling, "apply changed its plan"),
    (contract.sends_in_words, Hyphened, "`all-gather` is none of all_gather,"),
    (contract.keeps_the_model, Reshaping, r"changed what tok_embeddings\.weight is"),
    (contract.round_trips, Forgetting, "through JSON"),
    (contract.survives_nonsense, Raising, "times = 0 gives ZeroDivisionError"),
]


@pytest.mark.parametrize(("law", "plugin", "message"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_law_is_told(law: contract.Law, plugin: type[Any], message: str) -> None:
    """A plugin that breaks a law fails it, with a message where one line can say why."""
    CALLS.clear()
    with pytest.raises(AssertionError, match=message):
        law(_case(plugin))


def test_a_field_that_toml_lacks_is_told() -> None:
    """A type that TOML cannot spell is a broken plugin, by name of plugin and field."""
    registry = _case(Untyped).request.plugins.strategies
    with pytest.raises(PluginError, match="the field `how` has the type"):
        plugins.load(registry, "tried")


def test_a_case_names_its_table() -> None:
    """A case whose spec does not use the plugin says so."""
    case = replace(_case(Good), name="another")
    with pytest.raises(AssertionError, match=r"s\.toml has no table of `another`"):
        contract.laws_of(case)


def test_loading_torch_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin whose module imports a heavy library fails by the name of the library."""
    (tmp_path / "numpy.py").write_text("")
    (tmp_path / "heavy_plugin.py").write_text("import numpy\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    case = _case(Good)
    assert case.table.plugin == Good(axis="dp")
    with monkeypatch.context() as patch:
        patch.setattr(Good, "__module__", "heavy_plugin")
        with pytest.raises(AssertionError, match="heavy_plugin loads numpy"):
            contract.loads_no_torch(case)


def test_params_are_named() -> None:
    """Each pair of case and law has an id that says both."""
    ids = [param.id for param in contract.params([_case(Good)])]
    assert len(ids) == len(contract.STRATEGY_LAWS)
    assert "tried-applies_purely" in ids
