"""Damaged cards under specs that use them: findings or a plan, never a traceback.

The default run makes 300 damages; MESHLANG_CARD_MUTATIONS=10000 (`make mutation`) the full count.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from cards import CARD_BASES, CardBase
from damages import DAMAGES, Damage, made, renamed
from findings import found_in, hold
from measured import held

from meshlang.compiler import check

COUNT = int(os.environ.get("MESHLANG_CARD_MUTATIONS", "300"))
EVERY = (*DAMAGES, renamed)
#: One in so many is checked with its fixes tried.
TRIED = 10


@pytest.mark.parametrize("base", CARD_BASES, ids=[base.name for base in CARD_BASES])
def test_card_bases_have_no_findings(base: CardBase, tmp_path: Path) -> None:
    """Every card that is damaged here has no findings before."""
    assert found_in(base.request(tmp_path, base.text.encode())) == ()


@pytest.mark.parametrize("damage", EVERY, ids=[damage.__name__ for damage in EVERY])
def test_damaged_card_gives_findings_or_a_plan(damage: Damage, tmp_path: Path) -> None:
    """Whatever is done to a card, the compiler gives findings that can be shown, or a plan."""
    draw = random.Random(damage.__name__)
    for count in range(-(-COUNT // len(EVERY))):
        base = draw.choice(CARD_BASES)
        data = made(damage, draw, base.text)
        with held("damaged cards", data) as figures:
            request = base.request(tmp_path, data)
            found = check(request) if count % TRIED == 0 else found_in(request)
            hold(found) if found else None
        figures.with_findings += bool(found)
