"""`meshlang fmt` on damaged specs: while they are TOML, they mean what they meant."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from bases import BASES, Base, pick
from damages import DAMAGES, Damage, made
from test_damaged_specs import COUNT
from test_format import hold

from meshlang.diagnostics import Bag
from meshlang.format import meaning
from meshlang.language.toml import scan
from meshlang.source import Source


@pytest.mark.parametrize("base", BASES, ids=[Path(base.name).stem for base in BASES])
def test_specs_keep_their_meaning(base: Base) -> None:
    """Every example, and two specs that have every table, read as before."""
    hold(base.text, base.name)
    assert meaning(Source(base.name, base.text))[1] is not None


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.__name__ for damage in DAMAGES])
def test_damaged_specs_keep_their_meaning(damage: Damage) -> None:
    """Whatever is done to a spec: while it is TOML, `fmt` changes neither its values nor its comments."""
    draw, held = random.Random(f"format {damage.__name__}"), 0
    for _ in range(COUNT // 20):
        base = pick(draw, heavy=False)
        source = Source.decode(base.name, made(damage, draw, base.text))
        if scan(source, Bag()) is not None:
            hold(source.text, base.name)
            held += 1
    assert held > 0
