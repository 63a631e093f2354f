"""What takes minutes is left to `make walks`."""

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without MESHLANG_WALKS=1, tests of this folder that are marked `full` are left out."""
    if os.environ.get("MESHLANG_WALKS") == "1":
        return
    left = [item for item in items if HERE in item.path.parents and item.get_closest_marker("full")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
