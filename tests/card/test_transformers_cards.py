"""First cards of Hugging Face transformers' models, and what a person made of them."""

from __future__ import annotations

import re
from functools import cache

import pytest
import torch
from real_models import ROOT
from torch import nn
from transformers_models import MODELS

from meshlang.card.model import Model
from meshlang.card.read import flavors, read_card
from meshlang.compiler import Request, check
from meshlang.diagnostics import Bag
from meshlang.runtime.cards import check_card, init_card
from meshlang.source import Source

SIZES = [("qwen3_hf", "tiny"), ("qwen3_hf", "8B"), ("gpt2_hf", "tiny"), ("gpt2_hf", "small")]
each_flavor = pytest.mark.parametrize(("card", "flavor"), SIZES)


@cache
def model(card: str, flavor: str) -> nn.Module:
    """The real model on the meta device."""
    with torch.device("meta"):
        return MODELS[card](flavor)


def checked_in(card: str) -> Source:
    """The card as a person left it."""
    return Source.read(ROOT / f"examples/cards/{card}.card.toml")


def read(source: Source, flavor: str) -> Model:
    """A flavor of a card without findings."""
    bag = Bag()
    found = read_card(source, flavor, bag)
    assert found is not None, [each.message for each in bag]
    return found


def first(card: str, flavor: str) -> Source:
    """The card as `card init` writes it."""
    return Source("first.toml", init_card(model(card, flavor), card, flavor))


@pytest.mark.parametrize("card", MODELS)
def test_every_flavor_has_a_real_model(card: str) -> None:
    """No flavor of the cards goes untested."""
    assert list(flavors(checked_in(card), Bag())) == [flavor for name, flavor in SIZES if name == card]


@each_flavor
def test_card_agrees_with_transformers(card: str, flavor: str) -> None:
    """`card check` finds nothing, neither in the first card nor in the one gone over."""
    assert check_card(first(card, flavor), flavor, model(card, flavor)) == ()
    assert check_card(checked_in(card), flavor, model(card, flavor)) == ()


@each_flavor
def test_first_card_has_every_tensor_right(card: str, flavor: str) -> None:
    """Heads are found in the model's config: a person changed no dim of a tensor, nor tied or untied one."""
    ours, guessed = read(checked_in(card), flavor), read(first(card, flavor), flavor)
    assert [(t.fqn, t.dims, t.tied) for t in guessed.tensors] == [(t.fqn, t.dims, t.tied) for t in ours.tensors]
    assert guessed.sizes.items() <= ours.sizes.items()
    assert guessed.same == ours.same


@each_flavor
def test_first_card_misses_one_boundary_at_most(card: str, flavor: str) -> None:
    """GPT-2's position table takes one row for all sequences, and is the one boundary that a person changed."""
    ours, guessed = read(checked_in(card), flavor), read(first(card, flavor), flavor)
    changed = [
        b.module
        for b in ours.boundaries
        if b.ports() != guessed.by_module[b.module].ports() or b.added != guessed.by_module[b.module].added
    ]
    assert changed == (["transformer.wpe"] if card == "gpt2_hf" else [])
    assert ours.by_module.keys() == guessed.by_module.keys()


def test_biases_are_added() -> None:
    """A linear module with a bias adds it to what it computes."""
    boundaries = read(first("gpt2_hf", "tiny"), "tiny").by_module
    assert boundaries["transformer.h.1.mlp.c_proj"].added == ("bias",)
    assert boundaries["lm_head"].added == ()


def test_heads_inside_thirds_are_not_cut() -> None:
    """GPT-2's heads lie inside the thirds of one weight: cutting them is refused, and the way out was tried."""
    path = ROOT / "examples/transformers_gpt2.toml"
    text = re.sub(r'heads = "whole"', 'heads = "tp"', path.read_text())
    (finding,) = check(Request(source=Source(str(path), text)))
    assert finding.code == "inner-factor"
    assert "`(qkv heads head_dim)` on transformer.h.*.attn.c_attn.weight" in finding.notes[0]
    assert [edit.text for help_ in finding.help for edit in help_.edits] == ['"whole"']


def test_empty_tensor_has_no_card() -> None:
    """A tensor with a dimension of 0 is refused by name, with its shape."""
    from meshlang.runtime.cards import TargetError

    with torch.device("meta"), pytest.raises(TargetError, match=r"nothing is in `1.kept` \(0, 4\): build the model"):
        init_card(nn.Sequential(nn.Linear(4, 4), Empty()), "model", "it")


class Empty(nn.Module):
    """Holds a buffer of nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.empty(0, 4))
