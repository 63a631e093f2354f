"""Puts this folder on the import path, so that tests share `literate`; and ranks that all tests share.

`make test` runs two workers. What one of them does alone is a group: the tests that share ranks are one, since each
pool starts processes; otherwise each file is one. Long groups come first, so that no worker waits for the other's end.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from meshlang.testing.ranks import RankPool


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker each test names its group, and groups stand in the order in which they begin."""
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))
    items.sort(key=_begins)


def group(item: pytest.Item) -> str:
    """What is done by one worker: all that share ranks, or the tests of a file."""
    return "ranks" if "pool" in getattr(item, "fixturenames", ()) else str(item.path.name)


def _begins(item: pytest.Item) -> int:
    """Ranks first, then launches, then the rest."""
    return 0 if group(item) == "ranks" else 1 if item.get_closest_marker("gloo") else 2


@pytest.fixture(scope="session")
def pool() -> Iterator[RankPool]:
    """Up to eight ranks, which start at the first call; closed when the session ends."""
    with RankPool(8, timeout=240) as pool:
        yield pool
