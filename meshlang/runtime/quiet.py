"""A launch reads a recipe and its flags, as each rank does later, and leaves it to rank 0 to say what they log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def unheard() -> Iterator[None]:
    """What is logged inside is printed only where somebody has asked for a log."""
    nobody = logging.NullHandler()  # else Python prints warnings that no handler takes
    logging.getLogger().addHandler(nobody)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(nobody)
