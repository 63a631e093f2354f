"""Says at the end what the texts of this folder have used."""

from __future__ import annotations

import pytest
import targets  # noqa: F401, puts `measured` on the import path
from measured import tell


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each kind of text."""
    tell(terminalreporter.write_line)
