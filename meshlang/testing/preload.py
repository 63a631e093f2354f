"""What every rank needs, imported once by the server that ranks are forked from."""

from __future__ import annotations

from contextlib import suppress

import torch
import torch.distributed.tensor

torch.set_num_threads(1)

with suppress(ImportError):
    from ..runtime.device import prepare

    prepare("cpu")
    import torchtitan.models.llama3
    import torchtitan.models.qwen3
    import torchtitan.trainer  # noqa: F401

    from ..runtime import titan  # noqa: F401
    from . import parity, pipeline  # noqa: F401
