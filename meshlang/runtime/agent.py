"""torchrun as `meshlang launch` runs it: a run that fails ends with one line that says why.

The line has the rank that went first, its signal or exception, its step, and the last whole
checkpoint. Started as `python -m meshlang.runtime.agent`, with torchrun's own arguments.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from . import interrupt, progress
from .checkpoints import latest
from .progress import Fault

#: torchrun's own loggers; what they say of a failure is said here once.
_ELASTIC = "torch.distributed.elastic"


def main() -> None:
    """Run the ranks of this node; the exit code is 0, 1 after a failure, 128 + n after signal n."""
    here = progress.folder()
    assert here is not None
    asks = interrupt.asks(sys.argv)
    progress.end_with_parent(interrupt.AT_ONCE if asks else signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until torchrun listens: no traceback while it is imported
    if asks:
        interrupt.listen_on_agent(here)
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    args = parse_args(sys.argv[1:])
    _listen(here, int(args.max_restarts))
    try:
        _deaf_after(lambda: run(args))
    except ChildFailedError as error:
        exits = {rank: failure.exitcode for rank, failure in error.failures.items()}
        tell(here, exits, "the run ends")
        sys.exit(1)
    except SignalException as error:
        number = interrupt.asked(here) or error.sigval
        print(f"meshlang: {signal.Signals(number).name} ended the run; {kept(here)}", file=sys.stderr)
        sys.exit(128 + number)
    except Exception as error:  # nodes that do not meet, a port that is taken
        print(f"meshlang: torchrun failed: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)
    if (end := interrupt.stopped_after(here)) is not None:
        print(f"meshlang: {end[0].name} ended the run after step {end[1]}; {kept(here)}", file=sys.stderr)
        sys.exit(128 + end[0])


def _deaf_after(run: Callable[[], object]) -> None:
    """Run the ranks; what is said of their end afterwards is said whole, however often somebody interrupts."""
    try:
        run()
    finally:
        for number in (signal.SIGHUP, *interrupt.ASKING, interrupt.AT_ONCE):
            signal.signal(number, signal.SIG_IGN)


def _listen(here: Path, restarts: int) -> None:
    """torchrun's log is quiet but for a failure after which it starts again, told in our words."""
    for name in [name for name in logging.root.manager.loggerDict if name.startswith(_ELASTIC)]:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    processes = logging.getLogger(f"{_ELASTIC}.multiprocessing.api")
    processes.setLevel(logging.ERROR)
    processes.propagate = False
    processes.handlers = [_Restarts(here, restarts)]


class _Restarts(logging.Handler):
    """Hears torchrun say that a process failed, and tells why while there are restarts left."""

    def __init__(self, here: Path, restarts: int) -> None:
        super().__init__(logging.ERROR)
        self._here = here
        self._restarts = restarts
        self._used = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Of torchrun's "failed (exitcode: 1) local_rank: 2 ..." the two numbers."""
        if not record.msg.startswith("failed (exitcode") or self._used >= self._restarts:
            return
        assert isinstance(record.args, tuple)
        exitcode, local_rank = record.args[:2]
        assert isinstance(exitcode, int)
        assert isinstance(local_rank, int)
        self._used += 1
        tell(self._here, {_first_rank(self._here) + local_rank: exitcode}, f"restart {self._used} of {self._restarts}")
        progress.forget(self._here)


def _first_rank(here: Path) -> int:
    """The lowest rank of this node, once its ranks have written their steps."""
    ranks = [int(path.name.rpartition("-")[2]) for path in here.glob("step-*")]
    return min(ranks, default=0)


def tell(here: Path, exits: dict[int, int], after: str) -> None:
    """Print why the ranks ended, one line, after the traceback of the first where that helps."""
    fault = cause(progress.faults_of(here), exits)
    if fault.expected:
        print(f"meshlang: {fault.text}", file=sys.stderr, flush=True)
        return
    if fault.trace:
        print(fault.trace, end="", file=sys.stderr)
    step = progress.step_of(here, fault.rank)
    when = "before its first step" if step is None else f"at step {step + 1}"
    print(f"meshlang: rank {fault.rank} {fault.text}, {when}; {kept(here)}; {after}", file=sys.stderr, flush=True)


def cause(faults: Sequence[Fault], exits: dict[int, int]) -> Fault:
    """The failure that came first; others only lost their neighbour.

    Args:
        exits: exit code of each rank that torchrun saw fail, negative for a signal.
    """
    told = {fault.rank for fault in faults}
    silent = [
        Fault(rank=rank, text=_ended(code), time=time.time(), echo=code == -signal.SIGTERM)
        for rank, code in exits.items()
        if rank not in told
    ]
    raised = [fault if fault.expected else replace(fault, text=f"failed: {fault.text}") for fault in faults]
    return min([*silent, *raised], key=lambda fault: (fault.echo, fault.time))


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}"


def kept(here: Path) -> str:
    """What is left to resume from."""
    folder = progress.checkpoints_of(here)
    if folder is None:
        return "no checkpoints"
    found, skipped = latest(folder)
    if found is not None:
        return f"last whole checkpoint: {found.path}"
    why = f" ({skipped[0].path.name}: {skipped[0].problem})" if skipped else ""
    return f"no whole checkpoint in {folder}{why}"


if __name__ == "__main__":
    main()
