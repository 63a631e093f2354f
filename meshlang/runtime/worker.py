"""One rank of a launch: the device first, then torchtitan's own entry point."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable

from ..garbage import uncollected
from . import progress
from .interrupt import listen_on_rank
from .recipe import JOB, Job

#: Seconds that a rank stays which only lost its neighbour: torchrun looks each 0.1 s, and sees the neighbour first.
_LINGER = 5.0


def main() -> None:
    """Run torchtitan's `main` on the job of this launch, with the flags of this command line.

    An exception goes to the launch, which tells it once; a rank prints none.
    """
    progress.end_with_parent(signal.SIGKILL)
    if Job.read(os.environ[JOB]).on_interrupt == "checkpoint":
        listen_on_rank()
    else:
        # the launch says how it ended; a traceback of each rank says nothing
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        _train()
    except Exception as error:
        from ..lowering.errors import LoweringError
        from .checkpoints import CheckpointError

        if progress.failed(error, expected=isinstance(error, (CheckpointError, LoweringError))):
            time.sleep(_LINGER)
        sys.exit(1)


def of_plan(record: logging.LogRecord) -> bool:
    """Whether what DTensor says of a redistribute is of the plan's, and not of the norm of all gradients.

    torchtitan sums that norm axis by axis, and torch says for the first that ranks might come to other last digits.
    They do not: the second sum has the same terms, in the same order, on each rank.
    """
    return not any("_NormPartial" in str(word) for word in record.args or ())


def _train() -> None:
    with uncollected():
        train = _loaded()
    sys.argv = [sys.argv[0], "--module", "meshlang.runtime.recipe", "--config", "planned", *sys.argv[1:]]
    train()


def _loaded() -> Callable[[], None]:
    """torchtitan's `main`, loaded once the device is known."""
    from torchtitan.tools.logging import init_logger

    from .device import one_thread_a_rank, prepare

    init_logger()
    logging.getLogger("torch.distributed.tensor._redistribute").addFilter(of_plan)
    if prepare(Job.read(os.environ[JOB]).device) == "cpu":
        one_thread_a_rank()
    from torchtitan.train import main as train

    return train


if __name__ == "__main__":
    main()
