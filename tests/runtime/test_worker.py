"""One rank of a launch: what its log leaves out."""

from __future__ import annotations

import logging

import pytest
from torch.distributed.tensor._ops._math_ops import _NormPartial  # pyright: ignore[reportPrivateUsage]
from torch.distributed.tensor.placement_types import Partial, Replicate

from meshlang.runtime.worker import of_plan


@pytest.mark.parametrize(("placement", "said"), [(_NormPartial(2.0), False), (Partial(), True)])
def test_norm_of_gradients_is_no_news(placement: Partial, said: bool) -> None:
    """What torch says of a redistribute over two axes is passed on, but for that of the norm of all gradients."""
    words = ((placement, placement), (Replicate(), Replicate()), 2)
    record = logging.LogRecord("torch", logging.WARNING, "", 0, "from %s to %s, %d calls", words, None)
    assert of_plan(record) is said
