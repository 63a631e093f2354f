"""What a command with the installed distribution gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ran:
    """What a process printed, and how it ended."""

    code: int
    text: str


Meshlang = Callable[..., Ran]
