"""How large the report of a spec is, and how long it takes to open in headless Chromium.

    python benchmarks/report.py [SPEC] [--times 5]

The time is the browser's own, from the start of navigation to the end of the page's load event, each in a page of
its own; the first also has what the browser loads once. More than `GOAL_SECONDS` (median) or `GOAL_BYTES` gives exit
code 1. Wants the `dev` extra (playwright) and a Chromium on the PATH.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from playwright.sync_api import sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LARGEST = Path(__file__).parents[1] / "examples" / "llama3_405b_16384.toml"
GOAL_SECONDS = 2.0
GOAL_BYTES = 5_000_000
TIMING = "performance.timing.loadEventEnd - performance.timing.navigationStart"


def opened(file: Path, times: int) -> list[float]:
    """Seconds of each opening."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        sys.exit(f"none of {', '.join(BROWSERS)} is on the PATH")
    found: list[float] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for _ in range(times):
            page = browser.new_page()
            page.goto(file.as_uri())
            page.wait_for_function("performance.timing.loadEventEnd > 0")
            found.append(page.evaluate(TIMING) / 1e3)
            page.close()
        browser.close()
    return found


def main() -> int:
    """The figures of one report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", nargs="?", type=Path, default=LARGEST)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        command = [sys.executable, "-m", "meshlang", "report", str(given.spec), "-o", str(file)]
        subprocess.run(command, check=True, stdout=subprocess.PIPE)
        size, seconds = file.stat().st_size, opened(file, given.times)
    times = f"{median(seconds):.2f} s (first {seconds[0]:.2f}, most {max(seconds):.2f})"
    print(f"{given.spec.name}: {size:,} bytes; opens in {times}")
    return int(median(seconds) > GOAL_SECONDS or size > GOAL_BYTES)


if __name__ == "__main__":
    sys.exit(main())
