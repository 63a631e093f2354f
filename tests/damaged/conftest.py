"""Says at the end what the damaged texts have used."""

from __future__ import annotations

import pytest
from measured import FIGURES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each kind of text."""
    for kind, figures in FIGURES.items():
        terminalreporter.write_line(f"damaged {kind}: {figures}")
