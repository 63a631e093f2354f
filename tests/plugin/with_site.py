"""Functions for ranks that find another distribution; ranks of a pool know only what is installed."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


def rank_with(site: str, target: str, args: tuple[Any, ...]) -> Any:
    """What "module:function" gives with the distributions of a folder within reach."""
    sys.path.insert(0, site)
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)(*args)
