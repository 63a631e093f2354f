"""How long a case takes and how much memory the process has had: each case is held to what a finding may cost."""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

#: Of one case: seconds of the processor.
SECONDS = 2.0
#: Bytes of the whole process, Python and tests with it, where it begins with no more than `ALONE`; where other tests
#: have loaded torch into it, what it adds is held to the difference.
MEMORY = 500 * 2**20
ALONE = 80 * 2**20
#: A case that has used so much is broken off.
_HUNG = 20.0


def peak() -> int:
    """The most memory that this process has had, in bytes (Linux's VmHWM; elsewhere ru_maxrss)."""
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def from_now() -> int:
    """`peak`, which on Linux begins anew: what the process had before is no part of it."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass  # then what went before hides as much growth
    return peak()


@dataclass
class Figures:
    """What the cases of one kind have used so far."""

    cases: int = 0
    with_findings: int = 0
    seconds: float = 0.0
    worst: float = 0.0
    worst_text: str = ""
    first_peak: int = field(default_factory=from_now)
    last_peak: int = 0

    def __str__(self) -> str:
        counted = f"{self.cases} cases, {self.with_findings} with findings, {self.seconds:.0f} s of the processor"
        grown = f"most memory {self.first_peak >> 20} MiB before, {self.last_peak >> 20} MiB after"
        return f"{counted}, the longest {self.worst:.2f} s; {grown}"


FIGURES: dict[str, Figures] = {}


def tell(write: Callable[[str], object]) -> None:
    """One line for each kind, once."""
    while FIGURES:
        kind, figures = FIGURES.popitem()
        write(f"{kind}: {figures}")


class HungError(Exception):
    """A case that does not end."""


def _hung(number: int, frame: object) -> None:
    raise HungError(f"no answer after {_HUNG:g} s of the processor")


@contextmanager
def held(kind: str, data: bytes) -> Iterator[Figures]:
    """A case of a kind: counted, and held to `SECONDS` and `MEMORY`."""
    figures = FIGURES.setdefault(kind, Figures())
    before = signal.signal(signal.SIGPROF, _hung)
    signal.setitimer(signal.ITIMER_PROF, _HUNG)
    start = time.process_time()
    try:
        yield figures
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    seconds = time.process_time() - start
    figures.cases += 1
    figures.seconds += seconds
    if seconds > figures.worst:
        figures.worst, figures.worst_text = seconds, data.decode(errors="replace")
    assert seconds < SECONDS, f"{seconds:.2f} s of the processor for\n{figures.worst_text}"
    figures.last_peak = peak()
    most = max(figures.first_peak, ALONE) + MEMORY - ALONE
    assert figures.last_peak < most, f"{figures.last_peak >> 20} MiB after\n{data.decode(errors='replace')}"
