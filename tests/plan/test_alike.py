"""Layers that are alike are worked out once, and nothing changes by it."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from meshlang.card.model import Boundary, Model, TensorEntry
from meshlang.compiler import Request, load, resolved_of
from meshlang.plan.alike import Alike, folded, layer_of
from meshlang.plan.resolved import Resolved
from meshlang.source import Source

EXAMPLE = Path(__file__).parents[2] / "examples" / "llama_tiny_sequence_parallel.toml"


def resolved(more: str = "") -> Resolved:
    """The example, with more text at its end."""
    request = Request(source=Source(name=str(EXAMPLE), text=EXAMPLE.read_text() + more))
    return resolved_of(load(request), request)


def stand_ins(model: Model) -> dict[str, str]:
    """With one rule for everything."""
    return Alike(model, lambda fqn: ()).stand_ins()


@pytest.fixture(scope="module")
def model() -> Model:
    """The example's model."""
    return resolved().model


def test_equal_layers_share_a_stand_in(model: Model) -> None:
    """Under equal rules the first layer stands for all, and what is in no layer for itself."""
    found = stand_ins(model)
    assert found["layers.3.attention.wo.weight"] == "layers.0.attention.wo.weight"
    assert found["layers.3"] == "layers.0"
    assert found["lm_head.weight"] == "lm_head.weight"


def test_folded_model_has_one_layer(model: Model) -> None:
    """A folded model has the tensors of one layer of each kind, and what is in no layer."""
    layers = {layer_of(tensor.fqn) for tensor in folded(model, stand_ins(model)).tensors}
    assert layers == {"layers.0", "tok_embeddings.weight", "norm.weight", "lm_head.weight"}


def test_exceptions_make_a_kind() -> None:
    """A layer with an exception stands for itself; those around it share the first one."""
    at = '[at."layers.2.feed_forward"]\nmlp = "whole"\nwhy = "x"\n'
    found = resolved(at).stand_ins
    first = {found[f"layers.{number}"] for number in (0, 1, 3)}
    assert (first, found["layers.2"]) == ({"layers.0"}, "layers.2")


def test_store_exceptions_make_a_kind() -> None:
    """A layer that is not stored in parts is of another kind than one that is."""
    text = EXAMPLE.read_text().replace("[store]", '[store]\nexcept = ["layers.1"]')
    request = Request(source=Source(name=str(EXAMPLE), text=text))
    found = resolved_of(load(request), request).stand_ins
    assert (found["layers.1.attention.wo.weight"], found["layers.3"]) == ("layers.1.attention.wo.weight", "layers.0")


DIFFERENT: dict[str, Any] = {
    "inputs": (("x", (("batch",),)),),
    "output": (("batch",),),
    "whole": ("embed",),
    "whole_inputs": (("x", "embed"),),
    "added": ("bias",),
    "made": ("x",),
    "kind": "buffer",
    "dims": (("embed",),),
    "tied": ("other.weight",),
}


@pytest.mark.parametrize("key", [f.name for f in fields(Boundary) if f.name not in ("module", "span")])
def test_boundaries_of_a_kind_are_equal(model: Model, key: str) -> None:
    """A layer with a boundary that differs in any field from the others is a kind of its own."""
    changed = tuple(
        replace(each, **{key: DIFFERENT[key]}) if each.module == "layers.2.attention" else each
        for each in model.boundaries
    )
    found = stand_ins(replace(model, boundaries=changed))
    assert (found["layers.2"], found["layers.3"]) == ("layers.2", "layers.0")


@pytest.mark.parametrize("key", [f.name for f in fields(TensorEntry) if f.name not in ("fqn", "span", "key")])
def test_tensors_of_a_kind_are_equal(model: Model, key: str) -> None:
    """A layer with a tensor that differs in any field from the others is a kind of its own."""
    different = {**DIFFERENT, "module": "layers.2"}
    changed = tuple(
        replace(each, **{key: different[key]}) if each.fqn == "layers.2.attention.wo.weight" else each
        for each in model.tensors
    )
    found = stand_ins(replace(model, tensors=changed))
    assert (found["layers.2"], found["layers.3"]) == ("layers.2", "layers.0")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("layers.2", "output"), ("", "output")),
        (("layers.2", "output"), ("layers.1", "input.x")),
        (("layers.2.attention_norm", "output"), ("layers.2.attention", "input.x_BLD")),
    ],
)
def test_flow_of_one_layer_makes_a_kind(model: Model, first: tuple[str, str], second: tuple[str, str]) -> None:
    """A layer whose values go elsewhere, or come from elsewhere, is a kind of its own."""
    found = stand_ins(replace(model, flow={**model.flow, first: second}))
    assert (found["layers.2"], found["layers.3"]) == ("layers.2", "layers.0")
    assert (found["layers.1"] == "layers.1") == (second[0] == "layers.1")


def test_names_with_digits_are_no_layers(model: Model) -> None:
    """`w1` and `w3` are alike in a card, and stand for themselves."""
    found = stand_ins(model)
    assert found["layers.3.feed_forward.w3.weight"] == "layers.0.feed_forward.w3.weight"
    assert layer_of("w1.weight") == "w1.weight"
