"""A recipe that fails on one rank."""

import os

from meshlang_models.llama import tiny as _tiny
from torchtitan.trainer import Trainer


def broken() -> Trainer.Config:
    """The tiny recipe; rank 1 raises instead."""
    if os.environ.get("RANK") == "1":
        raise ValueError("seven is not a batch")
    return _tiny()
