"""Texts that were kept, and shaped ones: findings that can be shown, or a plan, within what either may cost.

`make fuzz` goes on with both for as long as it is told to (`MESHLANG_FUZZ`, seconds for each kind of text), and
keeps what it finds in `tests/corpus`.
"""

from __future__ import annotations

import os
import random
import time
from hashlib import sha256

import pytest
from hypothesis import HealthCheck, given, seed, settings
from shaped import SHAPES
from targets import CORPUS, TARGETS, hold_target

FUZZ = float(os.environ.get("MESHLANG_FUZZ", "0"))


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_has_an_answer(target: str) -> None:
    """Each text that is kept is answered."""
    kept = sorted((CORPUS / target).glob("*"))
    assert kept
    for path in kept:
        hold_target(target, path.read_bytes())


@pytest.mark.parametrize("target", SHAPES)
def test_shaped_texts_have_an_answer(target: str) -> None:
    """Whatever stands in tables and keys that are right, there is an answer."""
    draws, end = random.Random() if FUZZ else random.Random(target), time.monotonic() + FUZZ
    while True:
        explore(target, draws.randrange(2**32), 500 if FUZZ else 60)
        if time.monotonic() >= end:
            return


def explore(target: str, start: int, count: int) -> None:
    """So many texts; the smallest that breaks a promise is kept."""
    broken: list[bytes] = []

    @seed(start)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(SHAPES[target])
    def hold(data: bytes) -> None:
        try:
            hold_target(target, data)
        except Exception:
            broken.append(data)
            raise

    try:
        hold()
    except Exception:
        if FUZZ and broken:  # the last one is the smallest
            name = sha256(broken[-1]).hexdigest()[:12]
            (CORPUS / target / f"shaped-{name}").write_bytes(broken[-1])
        raise
