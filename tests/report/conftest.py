"""Reports that several tests look at, each made once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))

from reports import SPECS, Made, made  # noqa: E402


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """Name -> a spec, its plan, what its report shows, and the page in a file."""
    folder = tmp_path_factory.mktemp("reports")
    return {name: made(name, folder) for name in SPECS}
