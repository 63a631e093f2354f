"""Cards as a JSON Schema (2020-12), for editors. The reader of cards says more; what it takes keeps this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .model import RUN_SIZES
from .read import VERSION

_WORD = {"type": "string"}
_WORDS = {"type": "array", "items": _WORD}
_DIMS = {
    "type": "string",
    "description": 'names of the dims, outermost first; "(heads head_dim)" are factors of one dim',
    "examples": ["vocab embed", "embed (heads head_dim)", "batch seq embed"],
}
_TENSORS = {
    "anyOf": [_DIMS, {"type": "object", "additionalProperties": _DIMS}],
    "description": "the dims of a module's weight, or a table of tensor name -> dims",
}


def card_schema() -> dict[str, Any]:
    """The schema of a whole card."""
    found = _object({name: {**rule, "description": says} for name, (says, rule) in _KEYS.items()}, ("card", "model"))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "meshlang card", **found}


def _object(keys: Mapping[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    """An object of these keys and no others."""
    return {"type": "object", "properties": dict(keys), "required": list(required), "additionalProperties": False}


def _each(rule: Mapping[str, Any]) -> dict[str, Any]:
    """An object with any keys."""
    return {"type": "object", "additionalProperties": dict(rule)}


_FLAVOR: dict[str, Any] = {
    "type": "object",
    "description": "dimension -> its size, and how often a star counts",
    "properties": {
        "tied": {"type": "boolean", "description": "are the tensors of `[tied]` one tensor here"},
        **{name: {"not": {}, "description": "of the run: a spec's `[sizes]` has it"} for name in sorted(RUN_SIZES)},
    },
    "additionalProperties": {"type": "integer", "minimum": 1, "description": "a size of this flavor"},
}

_BOUNDARY: dict[str, Any] = {
    **_object(
        {
            "input": {**_each(_DIMS), "description": "name of an argument -> its dims"},
            "output": {**_DIMS, "description": "the dims of what the module returns"},
            "whole": {**_WORDS, "description": "dims, or ARGUMENT.DIM, that the module computes over as a whole"},
            "added": {**_WORDS, "description": "parameters that are added to the output, once, as a bias is"},
            "made": {**_WORDS, "description": "inputs that the model makes itself on every rank, as positions are"},
        }
    ),
    "description": "what crosses the boundary of a module",
}

#: Every key of a card: what it is for, and what it holds.
_KEYS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "card": ("version of the card's language", {"const": VERSION}),
    "model": ("name of the architecture", _WORD),
    "whole": ("dimensions that are whole unless a spec says otherwise", _WORDS),
    "units": ("modules whose parameters travel together when they are stored in parts", _WORDS),
    "flavor": ("flavor -> the sizes of its dimensions", _each(_FLAVOR)),
    "param": ("pattern of modules -> the dims of their parameters", _each(_TENSORS)),
    "buffer": ("pattern of modules -> the dims of their buffers", _each(_TENSORS)),
    "activation": ("pattern of modules -> the dims of what they take and give", _each(_BOUNDARY)),
    "flow": ("port -> the port that its value goes on to", _each({**_WORD, "description": "MODULE PORT"})),
    "same": ("dimension -> the one that counts the same things", _each({**_WORD, "description": "a dimension"})),
    "tied": ("parameter -> the one that is the same tensor", _each({**_WORD, "description": "fqn of a parameter"})),
    "split": (
        "word of a pipeline's split -> the modules it stands for, in the order that a value passes through them",
        _each({**_WORD, "description": "pattern of modules"}),
    ),
    "saved": (
        "pattern of modules -> the values that their forwards leave for their backwards",
        _each(
            _each({"type": "integer", "minimum": 1, "description": "how many: of a port, or of dims, `: type` behind"})
        ),
    ),
    "loss": (
        "what the loss is computed from",
        _object(
            {
                "logits": {**_DIMS, "description": "the dims of the logits"},
                "vocab": {**_WORD, "description": "the dim that the loss sums over"},
            },
            ("logits", "vocab"),
        ),
    ),
}
