"""A card held against a model that differs from it."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from real_models import ROOT, built
from torch import nn

from meshlang.card.check import check_card
from meshlang.card.facts import Facts
from meshlang.diagnostics import Diagnostic
from meshlang.runtime.cards import facts_of
from meshlang.source import Source

CARD = Source.read(ROOT / "models/llama3/card.toml").text
#: Without what modules leave: an edit of a module's line would have to be made there too.
TEXT = CARD[: CARD.index("[saved]")] + CARD[CARD.index("[loss]") :]


@cache
def real(flavor: str = "debugmodel") -> Facts:
    """What torchtitan's llama3 holds."""
    return facts_of(built("llama3", flavor))


def found(old: str, new: str, flavor: str = "debugmodel") -> list[Diagnostic]:
    """What `card check` says of our card with one edit."""
    assert old in TEXT
    return list(check_card(Source("card.toml", TEXT.replace(old, new, 1)), flavor, real(flavor)))


def said(old: str, new: str, flavor: str = "debugmodel") -> list[tuple[str, str]]:
    """Codes and messages."""
    return [(each.code, each.message) for each in found(old, new, flavor)]


def test_wrong_shape_shows_the_numbers() -> None:
    """A wrong dim is one finding for all layers, with both shapes and the dim that differs."""
    (finding,) = found('"embed (heads head_dim)"', '"embed mlp"')
    assert finding.code == "card-shape"
    assert finding.message == (
        "`layers.*.attention.wo.weight` (6 in all) is (256, 768) in the card and (256, 256) in the model"
    )
    assert finding.notes == ("dim 1, `mlp`: mlp 768 in the card, 256 in the model",)
    assert finding.label.span.text == '"embed mlp"'


def test_wrong_number_of_dims_is_said() -> None:
    """A missing dim is told as such."""
    (finding,) = found('"norm"                               = "embed"', '"norm" = "vocab embed"')
    assert finding.notes == ("the card names 2 dims, the model has 1",)


def test_wrong_size_is_found_wherever_it_is_used() -> None:
    """A wrong size of a flavor is a finding at each line that uses it."""
    assert [code for code, _ in said("mlp = 768", "mlp = 767")] == ["card-shape"] * 2


def test_misspelt_module_is_missing_and_extra() -> None:
    """A misspelt module is missing and more than the model has; the findings name each other."""
    text = TEXT.replace("attention.wo", "attention.wp")
    both = check_card(Source("card.toml", text), "debugmodel", real())
    assert [(each.code, each.notes) for each in both] == [
        ("card-missing", ("the nearest that only the card has is `layers.*.attention.wp.weight`",)),
        ("card-extra", ("the nearest that only the model has is `layers.*.attention.wo.weight`",)),
        ("card-boundary", ("the nearest is `layers.*.attention.wo`",)),
    ]


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        (
            'attention_norm,ffn_norm}" = "embed',
            'attention_norm}" = "embed',
            "card-missing",
            "the card lacks the parameter `layers.*.ffn_norm.weight` (6 in all) of shape (256,)",
        ),
        (
            'cache = "positions',
            'cash = "positions',
            "card-missing",
            "the card lacks the buffer `layers.*.attention.rope.cache` (6 in all) of shape (131072, 8)",
        ),
        (
            '{ cache = "positions rope" }',
            '{ cache = "positions rope", other = "rope" }',
            "card-extra",
            "the model has no buffer `layers.*.attention.rope.other` (6 in all)",
        ),
        (
            '"layers.*.attention.inner_attention"',
            '"layers.*.attention.kernel"',
            "card-boundary",
            "the model has no module `layers.*.attention.kernel` (6 in all)",
        ),
        (
            "input.x_BLD",
            "input.x",
            "card-boundary",
            "the forward of `layers.*.attention` (6 in all) takes no `x`",
        ),
    ],
)
def test_difference_is_one_finding(old: str, new: str, code: str, message: str) -> None:
    """One difference of all layers is one finding."""
    both = said(old, new)
    assert (code, message) in both
    assert sum(each == code for each, _ in both) == 1


def test_layers_that_differ_are_named() -> None:
    """Where the card has some of the layers, the finding says which it lacks."""
    finding = next(each for each in found("layers = 6", "layers = 4") if ".wo." in each.message)
    assert finding.message == (
        "the card lacks the parameter `layers.[4-5].attention.wo.weight` (2 in all) of shape (256, 256)"
    )
    assert finding.notes == ("the card has 4 of other layers",)


def test_wrong_kind_is_said() -> None:
    """A buffer that the card calls a parameter is told as such."""
    text = TEXT.replace("[buffer]\n", "", 1).replace("[activation]\n", '[activation]\n"layers.*.attention.rope" = {}\n')
    assert [(each.code, each.message) for each in check_card(Source("card.toml", text), "debugmodel", real())] == [
        ("card-extra", "`layers.*.attention.rope.cache` (6 in all) is a buffer of the model, not a parameter")
    ]


def test_tie_that_the_model_lacks() -> None:
    """A flavor that ties what the model does not is a finding."""
    assert said("rope = 8  ", "rope = 8\ntied = true  ") == [
        (
            "card-tie",
            "`lm_head.weight`, `tok_embeddings.weight` are one tensor in the card, and not in the model",
        )
    ]


def test_tie_that_the_card_lacks() -> None:
    """A tie of the model that the card lacks is a finding."""
    assert said("rope = 32\ntied = true", "rope = 32", "1B") == [
        (
            "card-tie",
            "`lm_head.weight`, `tok_embeddings.weight` are one tensor in the model, and not in the card",
        )
    ]


def test_fix_is_offered_when_it_mends() -> None:
    """A near name is offered only where the finding goes away with it."""
    (finding,) = found('"layers.*.attention.inner_attention"', '"layers.*.attention.inner_atention"')
    assert [edit.text for help_ in finding.help for edit in help_.edits] == ['"layers.*.attention.inner_attention"']


def test_only_input_is_offered() -> None:
    """Where a forward has one argument, it is the fix."""
    (finding,) = found('w2"           = { input.input', 'w2"           = { input.hidden')
    assert [edit.text for help_ in finding.help for edit in help_.edits] == ["input"]
    assert finding.notes == ("it takes input",)


def test_card_that_does_not_read_is_told_first() -> None:
    """Of a card that does not read, only that is said."""
    assert [code for code, _ in said("card  = 1", "card = 2")] == ["unknown-version"]


def test_facts_have_every_name_of_every_tensor() -> None:
    """Facts list tied names, buffers that are not saved, and arguments of forwards."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(2, 2, bias=False)
            self.b = self.a
            self.register_buffer("mask", torch.ones(3), persistent=False)
            self.heads = 4

        def forward(self, x: torch.Tensor, *rest: int, mask: int = 0, **more: int) -> None:
            """Nothing."""

    facts = facts_of(Tied())
    assert {t.fqn: (t.kind, t.shape, t.tied) for t in facts.tensors} == {
        "a.weight": ("parameter", (2, 2), ("b.weight",)),
        "b.weight": ("parameter", (2, 2), ("a.weight",)),
        "mask": ("buffer", (3,), ()),
    }
    root = facts.modules[""]
    assert (root.kind, root.inputs, root.required, root.open) == ("Tied", ("x", "mask"), ("x",), True)
    assert root.numbers["heads"] == 4
