"""Rows of the parity table as parameters of a test, and which of them the default run holds.

A row is named "MODEL, CASE, TYPE". `make parity` runs every row; without it only those run that a test
names as its sample: a fixed list, so that two runs of one commit hold the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest
from _pytest.mark import ParameterSet

#: Element types of each row, and how far it may be from one rank.
BOUNDS = {"float64": 1e-12, "float32": 5e-6, "bfloat16": 3e-2}

#: Those that a row has where it does not say.
EACH = ("float64", "float32")


def rows(
    cases: Mapping[str, Iterable[Any]], sample: Collection[str], dtypes: Collection[str] = EACH
) -> list[ParameterSet]:
    """Each case in each element type, which is the last parameter; rows outside of the sample are marked `full`.

    Args:
        cases: "MODEL, CASE" -> parameters.
        sample: "MODEL, CASE, TYPE" of those that always run.
    """
    found = {f"{name}, {dtype}": (*values, dtype) for name, values in cases.items() for dtype in dtypes}
    assert set(sample) <= found.keys(), sorted(set(sample) - found.keys())
    return [
        pytest.param(*values, id=name, marks=[pytest.mark.parity, *([] if name in sample else [pytest.mark.full])])
        for name, values in found.items()
    ]
