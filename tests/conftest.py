"""Puts this folder on the import path, so that tests share `literate`; and ranks that all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from meshlang.testing.ranks import RankPool

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parents[1]
# Before torch is loaded: tensors are small here, and threads that wait for each other keep the cores from the workers.
os.environ.setdefault("OMP_NUM_THREADS", "1")

#: The group of all tests that share ranks.
RANKS = "ranks"


@pytest.fixture(scope="session")
def pool() -> Iterator[RankPool]:
    """Up to eight ranks, which start at the first call; closed when the session ends."""
    with RankPool(8, timeout=240) as pool:
        yield pool


@cache
def group(file: str) -> str:
    """What one worker does alone, in order: the tests of a file, or those of all files that share ranks."""
    return RANKS if "RankPool" in (ROOT / file).read_text(encoding="utf-8") else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """With `-n 2`, as `make test` has it, a worker takes the next group when it has done one."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        """Groups in the order in which their first tests are collected."""

        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid.partition("::")[0])

    config.option.loadscopereorder = False
    return Groups(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker, what takes longest begins first: tests that share ranks, then launches."""
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        shares = "pool" in getattr(item, "fixturenames", ())
        assert not shares or group(item.nodeid.partition("::")[0]) == RANKS, f"{item.nodeid} would start other ranks"
    items.sort(key=_begins)


def _begins(item: pytest.Item) -> int:
    if group(item.nodeid.partition("::")[0]) == RANKS:
        return 0
    return 1 if item.get_closest_marker("gloo") else 2
