"""One pool of ranks for all tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from references import References

from meshlang.testing.ranks import RankPool

PACKAGE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder starts real processes."""
    for item in items:
        if PACKAGE in item.path.parents:
            item.add_marker(pytest.mark.gloo)


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankPool]:
    """Up to eight ranks; closed when the session ends."""
    with RankPool(8, timeout=240) as pool:
        yield pool


@pytest.fixture(scope="session")
def references(ranks: RankPool, tmp_path_factory: pytest.TempPathFactory) -> References:
    """What steps are held against."""
    return References(ranks, tmp_path_factory.mktemp("references"))
