"""Puts this folder on the import path, so that tests share `literate`; and ranks that all tests share."""

from collections.abc import Iterator

import pytest

from meshlang.testing.ranks import RankPool


@pytest.fixture(scope="session")
def pool() -> Iterator[RankPool]:
    """Up to eight ranks, which start at the first call; closed when the session ends."""
    with RankPool(8, timeout=240) as pool:
        yield pool
