"""The JSON Schema says what the reader says."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import tomli
from reading import FULL, PLUGINS, SMALL, attempt

from meshlang.language.schema import schema

SCHEMA = schema(PLUGINS)
TYPES: dict[str, Any] = {"object": dict, "array": list, "string": str, "boolean": bool}


def holds(value: Any, rule: Any) -> bool:
    """True when a value keeps a schema of the few words that ours uses."""
    if isinstance(rule, bool):
        return rule
    return all(_word(word, argument, value, rule) for word, argument in rule.items())


def _word(word: str, argument: Any, value: Any, rule: dict[str, Any]) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    checks: dict[str, Any] = {
        "type": lambda: _is(value, argument),
        "enum": lambda: any(type(value) is type(each) and value == each for each in argument),
        "const": lambda: type(value) is type(argument) and value == argument,
        "anyOf": lambda: any(holds(value, each) for each in argument),
        "allOf": lambda: all(holds(value, each) for each in argument),
        "if": lambda: not holds(value, argument) or holds(value, rule["then"]),
        "minimum": lambda: not number or value >= argument,
        "maximum": lambda: not number or value <= argument,
        "minLength": lambda: not isinstance(value, str) or len(value) >= argument,
        "pattern": lambda: not isinstance(value, str) or re.search(argument, value) is not None,
        "items": lambda: not isinstance(value, list) or all(holds(each, argument) for each in value),
        "minItems": lambda: not isinstance(value, list) or len(value) >= argument,
        "uniqueItems": lambda: not isinstance(value, list) or len({repr(each) for each in value}) == len(value),
        "required": lambda: not isinstance(value, dict) or value.keys() >= set(argument),
        "minProperties": lambda: not isinstance(value, dict) or len(value) >= argument,
        "properties": lambda: (
            not isinstance(value, dict)
            or all(holds(value[name], each) for name, each in argument.items() if name in value)
        ),
        "propertyNames": lambda: not isinstance(value, dict) or all(holds(name, argument) for name in value),
        "additionalProperties": lambda: (
            not isinstance(value, dict)
            or all(holds(each, argument) for name, each in value.items() if name not in rule.get("properties", {}))
        ),
    }
    assert word in checks or word in ("$schema", "title", "description", "examples", "then"), word
    return checks[word]() if word in checks else True


def _is(value: Any, name: str) -> bool:
    if name in ("integer", "number"):
        return type(value) is int or (name == "number" and type(value) is float)
    return isinstance(value, TYPES[name])


def test_schema_is_json() -> None:
    """The schema is plain JSON and names its dialect."""
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("tp = 2", 'tp = "rset"'),
        ("tp = 2", "tp = 0"),
        ("batch = 64", "bacth = 64"),
        ("batch = 64", "batch = true"),
        ('"free"', '"fre"'),
        ('["cp", "tp"]', '["cp", "cp"]'),
        ('["cp", "tp"]', "[]"),
        ('["cp", "tp"]', '"whole"'),
        ('"2 GiB"', '"2 gib"'),
        ('"2 GiB"', '"2.5MB"'),
        ("state_sharded = 0.95", "state_sharded = 2"),
        ("state_sharded = 0.95", "state_sharded = 1"),
        ('"S(1)"', '"S1"'),
        ("why =", "wy ="),
        ('schedule = "interleaved"', 'schedule = "other"'),
        ("chunks = 2", ""),
        ("warm = true", "warm = 1"),
        ("warm = true", "warmm = true"),
        ("steps = 3", "steps = 3.5"),
        ("steps = 3", 'size = "auto"'),
        ("steps = 3", "depth = 3"),
        ("[strategy.ring]", "[strategy.rng]"),
        ('"pad"', '"cut"'),
        ("[[check]]", "[check]"),
        ("meshlang = 1", "meshlang = 2"),
        ("[expect]", "[expecting]"),
        ('"training.steps"', '"--training.steps"'),
        (':llama3_debugmodel"', '"'),
    ],
)
def test_schema_and_reader_agree(old: str, new: str) -> None:
    """What the reader takes keeps the schema, and what it refuses breaks it."""
    text = FULL.replace(old, new, 1) if old else FULL
    assert holds(tomli.loads(text), SCHEMA) == (attempt(text)[0] is not None)


def test_every_key_is_described() -> None:
    """Each key of the language has a description."""

    def walk(rule: Any) -> None:
        for name, inner in rule.get("properties", {}).items() if isinstance(rule, dict) else ():
            assert inner.get("description") or "properties" in inner or "const" in inner, name
            walk(inner)

    walk(SCHEMA)
    assert holds(tomli.loads(SMALL), SCHEMA)
