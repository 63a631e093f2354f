"""Damaged specs through the whole compiler: findings or a plan, never a traceback, and no silent slip of a key.

The default run makes about 2,000 damages; MESHLANG_MUTATIONS=100000 (`make mutation`) the full count.
Damages are drawn from a seed, so a failure repeats.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from bases import BASES, Base, pick
from damages import DAMAGES, Damage, made, one_letter
from findings import found_in, hold, outcomes
from keys import keys_of
from measured import held

from meshlang.compiler import check, compile
from meshlang.plan.data import from_json, to_json

COUNT = int(os.environ.get("MESHLANG_MUTATIONS", "2000"))
#: One in so many is checked with its fixes tried, and one in so many plans is written and read.
TRIED, READ = 10, 10


@pytest.mark.parametrize("base", BASES, ids=[Path(base.name).stem for base in BASES])
def test_bases_have_no_findings(base: Base) -> None:
    """Every spec that is damaged here has no findings before, on any of its machines."""
    assert not any(outcomes(base.request))


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.__name__ for damage in DAMAGES])
def test_damage_gives_findings_or_a_plan(damage: Damage) -> None:
    """Whatever is done to a spec, the compiler gives findings that can be shown, or a plan that reads back."""
    draw = random.Random(damage.__name__)
    for count in range(COUNT // 8):
        base = pick(draw)
        data = made(damage, draw, base.text)
        with held("damaged specs", data) as figures:
            request = base.of(data)
            found = check(request) if count % TRIED == 0 else found_in(request)
            hold(found) if found else None
        figures.with_findings += bool(found)
        if not found and count % READ == 0:
            plan = compile(request)
            assert from_json(to_json(plan)) == plan


def _bare(text: str) -> str:
    return text[1:-1] if text[:1] in ("'", '"') else text


def test_no_slip_of_a_key_is_silent() -> None:
    """A key with one letter changed is a finding, unless the new word is a legal key of the same table.

    A key that only one machine of `[topology.on]` has is a finding with `--on` that machine.
    """
    draw = random.Random("keys")
    silent, slips = [], 0
    while slips < COUNT * 3 // 8:
        base = pick(draw)
        key = draw.choice(keys_of(base.name))
        word = one_letter(draw, key.span.text)
        if key.legal(_bare(word)) or _bare(word) == _bare(key.span.text):
            continue
        slips += 1
        data = (base.text[: key.span.start] + word + base.text[key.span.end :]).encode()
        with held("damaged specs", data) as figures:
            found = next(filter(None, outcomes(base.of(data))), ())
            hold(found) if found else silent.append((base.name, key.span.text, word))
        figures.with_findings += bool(found)
    assert silent == []
