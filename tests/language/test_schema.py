"""The JSON Schema says what the reader says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import tomli
from reading import FULL, PLUGINS, SMALL, attempt
from schema_rules import holds

from meshlang.card.schema import card_schema
from meshlang.language.schema import schema
from meshlang.registry import Plugins

ROOT = Path(__file__).parents[2]

SCHEMA = schema(PLUGINS)


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


def described(rule: Any, path: str = "") -> list[str]:
    """Names of keys without a description, anywhere in a schema."""
    if isinstance(rule, list):
        return [name for each in rule for name in described(each, path)]
    if not isinstance(rule, dict):
        return []
    lost = [
        f"{path}.{name}" for name, each in rule.get("properties", {}).items() if "then" not in rule and not said(each)
    ]
    return lost + [name for key, each in rule.items() if key != "if" for name in described(each, f"{path}.{key}")]


def said(rule: dict[str, Any]) -> bool:
    """True for a key whose description is a sentence and not its name."""
    return len(rule.get("description", "").split()) > 1


@pytest.mark.parametrize("found", [schema(Plugins()), card_schema()], ids=["spec", "card"])
def test_every_key_is_described(found: dict[str, Any]) -> None:
    """Each key of the language, of our plugins and of cards has a description."""
    assert described(found) == []
    assert not re.search(r'"`\w+` of `\w+`"', json.dumps(found))


@pytest.mark.parametrize("what", ["spec", "card"])
def test_schema_files_are_current(what: str) -> None:
    """The files that the examples name are what `meshlang schema` prints; `make schema` writes them anew."""
    found = schema(Plugins()) if what == "spec" else card_schema()
    assert json.loads((ROOT / "schema" / f"{what}.json").read_text()) == found


def test_small_spec_keeps_the_schema() -> None:
    """Four lines make a spec."""
    assert holds(tomli.loads(SMALL), SCHEMA)
