"""The JSON Schema of cards takes what the reader takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli
from schema_rules import holds
from test_card_reading import SMALL
from test_card_reading import read as attempt

from meshlang.card import ports, read
from meshlang.card.find import Cards
from meshlang.card.read import flavors, read_card
from meshlang.card.schema import card_schema
from meshlang.diagnostics import Bag
from meshlang.source import Source

EXAMPLE = Path(__file__).parents[2] / "examples" / "cards" / "mixer.card.toml"
FILES = [path for name in Cards().names() if (path := Cards().path(name)) is not None] + [EXAMPLE]
SCHEMA = card_schema()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_cards_keep_the_schema(path: Path) -> None:
    """Every card of ours keeps the schema, and reads without a finding in each flavor."""
    assert holds(tomli.loads(path.read_text()), SCHEMA)
    source, bag = Source.read(path), Bag()
    assert all(read_card(source, flavor, bag) for flavor in flavors(source, bag))


def test_schema_has_the_keys_of_the_reader() -> None:
    """The keys of a card and of a boundary are those that the reader knows."""
    assert set(SCHEMA["properties"]) == set(read._TOP)  # pyright: ignore[reportPrivateUsage]
    boundary = SCHEMA["properties"]["activation"]["additionalProperties"]
    assert set(boundary["properties"]) == set(ports._KEYS)  # pyright: ignore[reportPrivateUsage]


EDITS = [
    ("layers = 2", "layers = 0"),
    ("layers = 2", 'layers = "2"'),
    ("layers = 2", "layers = 2\nseq = 8"),
    ("layers = 2", "layers = 2\ntied = 1"),
    ("card  = 1", "card = 2"),
    ("card  = 1", ""),
    ('model = "small"', ""),
    ("[param]", "[params]"),
    ('"mlp embed"', "1"),
    ('bias = "embed"', "bias = []"),
    ('output = "batch seq mlp"', 'ouput = "batch seq mlp"'),
    ('whole = ["embed"] }', 'whole = "embed" }'),
    ('units = ["layers.*", "head"]', 'units = "layers.*"'),
    ('"head output" = "output"', '"head output" = 1'),
    ('vocab = "vocab"', ""),
    ('vocab = "vocab"', 'vocab = "vocab"\nother = 1'),
]


@pytest.mark.parametrize(("old", "new"), EDITS, ids=[new or f"no {old}" for old, new in EDITS])
def test_both_refuse_what_has_another_shape(old: str, new: str) -> None:
    """A key of another name or type breaks the schema, and is a finding."""
    head, _, tail = SMALL.rpartition(old)
    text = head + new + tail
    assert not holds(tomli.loads(text), SCHEMA)
    assert attempt(text)[0] is None


def test_what_the_reader_takes_keeps_the_schema() -> None:
    """No card that reads breaks the schema: each value in turn is replaced by one of every type."""
    taken = 0
    for line in [line for line in SMALL.splitlines() if " = " in line]:
        for value in ("1", "true", '"embed"', '""', "[]", '["embed"]', "{}", '{ a = "embed" }', "1.5"):
            text = SMALL.replace(line, f"{line.rpartition(' = ')[0]} = {value}" if line.count(" = ") == 1 else line)
            if attempt(text)[0] is not None:
                taken += 1
                assert holds(tomli.loads(text), SCHEMA), (line, value)
    assert taken > 0
