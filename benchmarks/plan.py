"""How long `meshlang check` and `meshlang plan` take, as whole processes, from the shell's side.

    python benchmarks/plan.py [--runs 7]

Three tables: checking each example, planning the largest model for more and more ranks, and the
slowest imports of one check. Modules are compiled to bytecode before, as an install leaves them.
`cpu` is the processor's time, which a busy machine lengthens less than the clock's; goals are held
against its median. A goal that is missed gives exit code 1.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
MESHLANG = (sys.executable, "-c", "from meshlang.cli import main; main()")
LARGEST = EXAMPLES / "llama3_405b_16384.toml"

#: Seconds: the median may not be more.
CHECK_GOAL = 0.3
PLAN_GOAL = 1.0

#: How much longer a plan for 131,072 ranks may take than one for 16,384.
GROWTH_GOAL = 1.1


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds of some runs of one command, by the clock and of the processor."""

    name: str
    seconds: tuple[float, ...]
    cpu: tuple[float, ...]

    @property
    def spent(self) -> float:
        """Median of the processor."""
        return statistics.median(self.cpu)

    def row(self) -> str:
        """Name; least, median and most by the clock; median of the processor."""
        by_clock = f"{min(self.seconds):8.3f} {statistics.median(self.seconds):8.3f} {max(self.seconds):8.3f}"
        return f"  {self.name:<40} {by_clock} {self.spent:8.3f}"


def run(arguments: Sequence[str]) -> tuple[float, float]:
    """(seconds by the clock, of the processor) of one process; its output is read and dropped."""
    start, before = time.perf_counter(), _spent()
    subprocess.run([*MESHLANG, *arguments], check=True, stdout=subprocess.PIPE)
    return time.perf_counter() - start, _spent() - before


def _spent() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def timed(commands: dict[str, Sequence[str]], runs: int) -> tuple[Timing, ...]:
    """All commands in turn, `runs` times over: what disturbs the machine disturbs all of them alike."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for arguments in commands.values():
        run(arguments)
    for _ in range(runs):
        for name, arguments in commands.items():
            found[name].append(run(arguments))
    return tuple(Timing(name=name, seconds=seconds, cpu=cpu) for name, (seconds, cpu) in _columns(found))


def _columns(found: dict[str, list[tuple[float, float]]]) -> Iterator[tuple[str, tuple[tuple[float, ...], ...]]]:
    for name, pairs in found.items():
        yield name, tuple(zip(*pairs, strict=True))


def checks() -> dict[str, Sequence[str]]:
    """`check` of every example."""
    return {f"check {path.name}": ("check", str(path)) for path in sorted(EXAMPLES.glob("*.toml"))}


def plans() -> dict[str, Sequence[str]]:
    """`plan` of the largest example for 2,048 to 131,072 ranks: more copies, and more sequences for them."""
    return {f"plan {copies * 1024:,} ranks": _plan(copies) for copies in (2, 16, 128)}


def _plan(copies: int) -> Sequence[str]:
    return ("plan", str(LARGEST), "--set", f"mesh.copies={copies}", "--set", f"sizes.batch={copies * 128}")


def imports(most: int) -> Iterator[str]:
    """The slowest imports of one check: milliseconds of a module alone, and with what it imports."""
    arguments = [MESHLANG[0], "-X", "importtime", *MESHLANG[1:], "check", str(EXAMPLES / "llama_tiny_cpu.toml")]
    text = subprocess.run(arguments, check=True, capture_output=True, text=True).stderr
    rows = [line.removeprefix("import time:").split("|") for line in text.splitlines() if line[-1:] != "]"]
    found = [(int(own), int(total), name.strip()) for own, total, name in rows if own.strip().isdigit()]
    yield f"  {'all ' + str(len(found)) + ' modules':<40} {sum(own for own, _, _ in found) / 1000:8.1f}"
    for own, total, name in sorted(found, reverse=True)[:most]:
        yield f"  {name:<40} {own / 1000:8.1f} {total / 1000:8.1f}"


def missed(checked: Sequence[Timing], planned: Sequence[Timing]) -> Iterator[str]:
    """A line for each goal that is missed."""
    for timing in checked:
        if timing.spent > CHECK_GOAL:
            yield f"{timing.name}: {timing.spent:.3f} s of the processor, and {CHECK_GOAL} s is the goal"
    _, usual, largest = planned
    if usual.spent > PLAN_GOAL:
        yield f"{usual.name}: {usual.spent:.3f} s of the processor, and {PLAN_GOAL} s is the goal"
    if largest.spent > GROWTH_GOAL * usual.spent:
        yield f"{largest.name}: {largest.spent / usual.spent:.2f} times {usual.name}, and {GROWTH_GOAL} is the goal"


def main() -> int:
    """Print the tables; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=7, help="runs of each command")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        return report(runs)


def report(runs: int) -> int:
    """The tables."""
    header = f"  {'seconds of a whole process':<40} {'min':>8} {'median':>8} {'max':>8} {'cpu':>8}"
    checked = timed(checks(), runs)
    print(f"checking, {runs} runs\n{header}", *(each.row() for each in checked), sep="\n")
    planned = timed(plans(), runs)
    print(f"\nplanning llama3/405B, {runs} runs\n{header}", *(each.row() for each in planned), sep="\n")
    print(f"\nimports of one check\n  {'milliseconds':<40} {'alone':>8} {'with all':>8}", *imports(12), sep="\n")
    left = list(missed(checked, planned))
    print("", *(left or ["every goal is met"]), sep="\n")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
