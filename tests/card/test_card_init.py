"""A first card for any model: it reads, it agrees with the model, and it says what it guesses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from real_models import ROOT, EncoderLayer, Gpt, Holding, Nested, built, conv, empty, shared
from torch import nn

from meshlang.card.model import Model
from meshlang.card.read import read_card
from meshlang.compiler import Request, compile
from meshlang.diagnostics import Bag
from meshlang.runtime.cards import check_card, init_card
from meshlang.source import Source

MODELS: dict[str, Callable[[], nn.Module]] = {
    "llama3": lambda: built("llama3", "debugmodel"),
    "llama3 tied": lambda: built("llama3", "1B"),
    "llama": lambda: built("llama", "tiny"),
    "encoder": EncoderLayer,
    "torch encoder": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(32, 4, 64), 2, enable_nested_tensor=False
    ),
    "torch transformer": lambda: nn.Transformer(32, 4, 2, 2, 64, batch_first=True),
    "gpt": Gpt,
    "linear": lambda: nn.Linear(8, 4),
    "square": lambda: nn.Linear(8, 8, bias=False),
    "nested": Nested,
    "holding": Holding,
    "conv": conv,
    "lstm": lambda: nn.LSTM(8, 8, 2),
    "shared": shared,
    "empty": empty,
}


def first_card(module: nn.Module) -> str:
    """The text of a first card."""
    return init_card(module, "model", "it")


def read(text: str) -> Model:
    """The model that a first card describes."""
    bag = Bag()
    model = read_card(Source("it.toml", text), "it", bag)
    assert model is not None, [(each.code, each.message, str(each.label.span)) for each in bag]
    return model


def made(name: str) -> nn.Module:
    """A model on the meta device."""
    with torch.device("meta"):
        return MODELS[name]()


@pytest.mark.parametrize("name", MODELS)
def test_first_card_passes_card_check(name: str) -> None:
    """The first card of any model agrees with it."""
    module = made(name)
    assert check_card(Source("it.toml", first_card(module)), "it", module) == ()


@pytest.mark.parametrize("name", MODELS)
def test_first_card_is_the_same_again(name: str) -> None:
    """The text depends on the model alone."""
    assert first_card(made(name)) == first_card(made(name))


def test_each_guess_is_marked() -> None:
    """Every line that states what the model alone does not tell ends in a remark."""
    lines = [line for line in first_card(made("gpt")).splitlines() if " = " in line]
    told = ("card ", "model ", "h ", "tied ", "vocab ", '"wte.weight"')
    assert [line for line in lines if "# guess: " not in line and not line.startswith(told)] == []


def test_layers_are_folded() -> None:
    """Equal layers are one line, and their count a size."""
    text = first_card(made("llama3"))
    assert '"layers.*.feed_forward.w1"' in text
    assert "layers.0.feed" not in text.replace("`layers.0.feed_forward.w1.weight`", "")
    assert read(text).sizes["layers"] == 6


def test_unequal_lists_are_told_apart() -> None:
    """A list that is shorter than another of its name lists its layers."""
    text = first_card(made("nested"))
    assert '"encoder.layers.*"' in text
    assert '"decoder.layers.{0,1}"' in text
    assert '"blocks.*.{0,1}"' in text
    assert '"stairs.2.{0,1,2}"' in text


def test_llama3_gets_the_names_of_our_card() -> None:
    """What is guessed of torchtitan's llama3 is what our card says, but for the second side of its rope."""
    bag = Bag()
    ours = read_card(Source.read(ROOT / "models/llama3/card.toml"), "debugmodel", bag)
    assert ours is not None
    guessed = {t.fqn: t.dims for t in read(first_card(made("llama3"))).tensors}
    assert guessed == {t.fqn: t.dims for t in ours.tensors}


def test_heads_are_named_from_attributes() -> None:
    """A fused projection is queries, keys and values of heads, and the way out starts with the heads."""
    dims = {t.fqn: t.dims for t in read(first_card(made("gpt"))).tensors}
    assert dims["h.0.attn.c_attn.weight"] == (("qkv", "heads", "head_dim"), ("embed",))
    assert dims["h.0.attn.c_attn.bias"] == (("qkv", "heads", "head_dim"),)
    assert dims["h.0.attn.c_proj.weight"] == (("embed",), ("heads", "head_dim"))
    assert dims["h.0.mlp.0.weight"] == (("mlp",), ("embed",))
    assert dims["h.0.mlp.2.weight"] == (("embed",), ("mlp",))
    assert dims["wpe.weight"] == (("positions",), ("embed",))


def test_an_output_projection_may_be_called_o() -> None:
    """Beside q, k and v a square weight `o` is the way out, which no shape tells, and its output is attention's."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = 2
            self.q, self.k, self.v, self.o = (nn.Linear(8, 8, bias=False) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (p(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q, self.k, self.v))
            return self.o(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.attention, self.head = nn.Embedding(32, 8), Attention(), nn.Linear(8, 32, bias=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.attention(self.embed(tokens)))

    text = first_card(Net().to("meta"))
    assert {t.fqn: t.dims for t in read(text).tensors}["attention.o.weight"] == (("embed",), ("heads", "head_dim"))
    assert '"attention.o output" = "attention output"' in " ".join(text.split())


def test_tied_names_are_one_tensor() -> None:
    """The tied head is the embedding's other name, and travels with it."""
    model = read(first_card(made("gpt")))
    assert {t.fqn: t.tied for t in model.tensors if t.tied} == {"wte.weight": ("lm_head.weight",)}
    assert [unit for unit in model.units if "wte" in unit] == [("wte", "ln_f", "lm_head")]


def test_attention_keeps_the_sequence_whole() -> None:
    """What looks like attention says that it needs the whole sequence."""
    assert read(first_card(made("gpt"))).by_module["h.0.attn"].whole == ("seq",)
    assert read(first_card(made("encoder"))).by_module["self_attn"].whole == ("seq",)


def test_module_that_holds_parameters_is_one_boundary() -> None:
    """A module with parameters of its own and modules inside is described as one, cut nowhere inside."""
    model = read(first_card(made("holding")))
    assert list(model.by_module) == [""]
    assert {t.module for t in model.tensors} == {""}


def test_gpt_card_makes_a_plan(tmp_path: Path) -> None:
    """A first card is enough for a plan; its feed-forward is cut and ends in a sum over tp."""
    (tmp_path / "gpt.card.toml").write_text(first_card(made("gpt")))
    text = """
meshlang = 1
model = "./gpt.card.toml#it"
[mesh]
dp = 2
tp = 2
[sizes]
batch = 4
seq = 32
[place]
batch = "dp"
vocab = "tp"
mlp = "tp"
heads = "whole"
"""
    plan = compile(Request(source=Source(name=str(tmp_path / "spec.toml"), text=text)))
    assert plan.by_fqn["h.1.mlp.0.weight"].layout.kind("tp") == "S(0)"
    assert plan.by_fqn["h.1.mlp.2.weight"].layout.kind("tp") == "S(1)"
    edge = plan.by_port["h.1.mlp.2", "output"]
    assert (edge.src.kind("tp"), edge.dst.kind("tp")) == ("P", "I")


@pytest.mark.parametrize("word", ["1B", "a b", 'quo"te', "neu\nline", "x.y"])
def test_any_name_of_card_and_flavor_reads(word: str) -> None:
    """Names of cards and flavors are written so that TOML takes them."""
    module = made("linear")
    assert check_card(Source("it.toml", init_card(module, word, word)), word, module) == ()
