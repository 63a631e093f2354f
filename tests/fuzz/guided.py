"""Texts of bytes, guided by the lines of meshlang that they reach: `guided.py spec|card|order SECONDS`.

A text that raises, takes over 2 s or over 500 MB is kept in `tests/corpus`, where the tests replay it. What reached
new lines is kept in `.fuzz`, and a later run goes on from there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import partial

import atheris

with atheris.instrument_imports(include=["meshlang", "meshlang_strategies"]):
    from targets import CORPUS, EXAMPLES, GOOD_ORDER, TARGETS, hold_target

    from meshlang.language.tables import ROOT as TABLES

    TARGETS["order"](GOOD_ORDER.encode())  # loads what is loaded when it is asked for: schedules, and their checks
    TARGETS["spec"]((EXAMPLES / "llama_tiny_context_parallel.toml").read_bytes())

#: What libFuzzer calls a hang (of the clock; targets count the processor's seconds), too large and too long.
SECONDS, MEGABYTES, BYTES = 60, 500, 6000
ROOT = CORPUS.parents[1]


def seeds(target: str) -> Iterator[bytes]:
    """Texts without findings to begin from."""
    if target == "spec":
        yield from (path.read_bytes() for path in sorted(EXAMPLES.glob("*.toml")))
    elif target == "card":
        folders = (EXAMPLES / "cards").glob("*.toml"), (ROOT / "models").glob("*/card.toml")
        yield from (path.read_bytes() for folder in folders for path in sorted(folder))
    else:
        yield GOOD_ORDER.encode()


def words(texts: Iterator[bytes]) -> list[str]:
    """What a text is made of: keys and words of the language and of the seeds."""
    found = {word for text in texts for word in re.findall(r'"[^"\n\\]*"|[A-Za-z_]\w*|\[\[?[\w.]+', text.decode())}
    return sorted({*found, *TABLES.keys, "[[", "]]", '"""', "\\u0000", "**", "9223372036854775807"})


def main(target: str, seconds: int) -> None:
    """Run one target for some seconds; a text that breaks a promise ends the run with its path."""
    work = ROOT / ".fuzz" / target
    (work / "reached").mkdir(parents=True, exist_ok=True)
    (CORPUS / target).mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(seeds(target)):
        (work / "reached" / f"seed-{number}").write_bytes(text)
    escaped = [word.replace("\\", "\\\\").replace('"', '\\"') for word in words(seeds(target))]
    (work / "words").write_text("".join(f'"{word}"\n' for word in escaped))
    options = [
        f"-max_total_time={seconds}",
        f"-timeout={SECONDS}",
        f"-rss_limit_mb={MEGABYTES}",
        f"-max_len={BYTES}",
        f"-dict={work / 'words'}",
        f"-artifact_prefix={CORPUS / target}/",
        "-print_final_stats=1",
        "-verbosity=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(work / "reached"), str(CORPUS / target)], partial(hold_target, target))
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
