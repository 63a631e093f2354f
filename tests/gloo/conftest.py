"""Every test of this folder runs on the ranks that all share, and may be a row of the parity table."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from references import References
from table import kept, recording, write

from meshlang.testing.ranks import RankPool

PACKAGE = Path(__file__).parent

#: Where the parity table goes, if anywhere.
TABLE = os.environ.get("MESHLANG_PARITY")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every test of this folder starts real processes; rows outside of the samples run for the table only."""
    for item in items:
        if PACKAGE in item.path.parents:
            item.add_marker(pytest.mark.gloo)
    done = {row.test for row in kept(Path(TABLE))} if TABLE else set()
    if left := [item for item in items if item.nodeid in done or (not TABLE and item.get_closest_marker("full"))]:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


@pytest.fixture(scope="session")
def ranks(pool: RankPool) -> Iterator[RankPool]:
    """The ranks of all tests; for the parity table with a record of what they did."""
    if TABLE:
        pool.run = recording(pool.run, Path(TABLE))
    yield pool
    if TABLE:
        write(Path(TABLE), kept(Path(TABLE)))


@pytest.fixture(scope="session")
def references(ranks: RankPool, tmp_path_factory: pytest.TempPathFactory) -> References:
    """What steps are held against."""
    return References(ranks, tmp_path_factory.mktemp("references"))
