"""One pool of ranks for all tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from meshlang.plan.ir import Plan
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


class References:
    """Files with the loss and gradients of one rank, each made once."""

    def __init__(self, ranks: RankPool, folder: Path) -> None:
        self._ranks = ranks
        self._folder = folder
        self._made: dict[tuple[object, ...], str] = {}

    def path(self, target: str, plan: Plan, *args: str) -> str:
        """The file that `target(*args, plan, path)` writes for plans of this model, size and precision."""
        key = (target, args, plan.model, plan.sizes, plan.precision)
        if key not in self._made:
            path = str(self._folder / f"{len(self._made)}.pt")
            self._ranks.run(target, *args, plan, path, ranks=1)
            self._made[key] = path
        return self._made[key]


@pytest.fixture(scope="session")
def references(ranks: RankPool, tmp_path_factory: pytest.TempPathFactory) -> References:
    """What steps are held against."""
    return References(ranks, tmp_path_factory.mktemp("references"))
