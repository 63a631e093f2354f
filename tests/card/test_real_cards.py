"""Our cards against the models that they describe."""

from __future__ import annotations

import inspect
from functools import cache

import pytest
from real_models import BLOCK_DIFFUSION, LLAMA, LLAMA3, QWEN3, ROOT, TITAN, built

from meshlang.card.model import Model
from meshlang.card.read import flavors, read_card
from meshlang.diagnostics import Bag
from meshlang.runtime.cards import check_card, facts_of
from meshlang.source import Source

FLAVORS = {"llama": LLAMA, "llama3": LLAMA3, "qwen3": QWEN3, "block_diffusion": BLOCK_DIFFUSION}
CASES = [(card, flavor) for card, flavors in FLAVORS.items() for flavor in flavors]

#: Flavors of torchtitan's registries that are other models: experts, or projections of other names.
OTHERS = {"qwen3": {"debugmodel_non_fused_qkv", "debugmodel_moe", "30B-A3B", "235B-A22B"}}
each_flavor = pytest.mark.parametrize(("card", "flavor"), CASES)


def source(card: str) -> Source:
    """The text of one of our cards."""
    return Source.read(ROOT / f"models/{card}/card.toml")


@cache
def read(card: str, flavor: str) -> Model:
    """A flavor of one of our cards."""
    bag = Bag()
    model = read_card(source(card), flavor, bag)
    assert model is not None, [each.message for each in bag]
    return model


@pytest.mark.parametrize("card", FLAVORS)
def test_every_flavor_has_a_case(card: str) -> None:
    """No flavor of our cards goes untested."""
    assert list(flavors(source(card), Bag())) == [flavor for name, flavor in CASES if name == card]


@pytest.mark.parametrize("card", TITAN)
def test_no_flavor_of_torchtitan_is_missed(card: str) -> None:
    """A card has every flavor of torchtitan's registry but those of another architecture."""
    assert set(FLAVORS[card]) == TITAN[card].keys() - OTHERS.get(card, set())


@each_flavor
def test_card_agrees_with_the_model(card: str, flavor: str) -> None:
    """`card check` finds nothing."""
    assert check_card(source(card), flavor, built(card, flavor)) == ()


@each_flavor
def test_tensors_are_the_model_s(card: str, flavor: str) -> None:
    """Names, kinds and shapes of parameters and buffers are the model's, buffers that are not saved too."""
    model = read(card, flavor)
    real = built(card, flavor)
    shapes = {t.fqn: (t.kind, tuple(model.size(factors) for factors in t.dims)) for t in model.tensors}
    parameters = {name: ("parameter", tuple(p.shape)) for name, p in real.named_parameters()}
    assert shapes == parameters | {name: ("buffer", tuple(b.shape)) for name, b in real.named_buffers()}


@each_flavor
def test_boundaries_are_of_forwards(card: str, flavor: str) -> None:
    """Each boundary is a module's, each input an argument of its forward."""
    modules = dict(built(card, flavor).named_modules())
    for boundary in read(card, flavor).boundaries:
        arguments = inspect.signature(type(modules[boundary.module]).forward).parameters
        assert {name for name, _ in boundary.inputs} <= arguments.keys(), boundary.module


@each_flavor
def test_tied_tensors_have_torch_s_first_name(card: str, flavor: str) -> None:
    """A tied tensor has the name that named_parameters() gives it, and its other names beside."""
    real = built(card, flavor)
    facts = facts_of(real)
    first = {name for name, _ in real.named_parameters()}
    tied = {t.fqn: t.tied for t in facts.tensors if t.tied and t.fqn in first}
    assert {t.fqn: t.tied for t in read(card, flavor).tensors if t.tied} == tied


@each_flavor
def test_each_parameter_has_one_unit(card: str, flavor: str) -> None:
    """Each parameter lies in just one of the units."""
    model = read(card, flavor)
    for tensor in model.tensors:
        holding = [unit for unit in model.units if any(tensor.fqn.startswith(f"{module}.") for module in unit)]
        assert len(holding) == (tensor.kind == "parameter") or tensor.kind == "buffer", tensor.fqn
