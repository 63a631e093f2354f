"""Reads commands, a line of JSON each; forks, runs one, and answers with what it printed and used."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
from pathlib import Path

from meshlang.cli import main

#: A case that goes so far beyond what is allowed is ended: bytes, seconds of the processor, seconds of the clock.
ADDRESSES, PROCESSOR, CLOCK = 4 * 2**30, 30, 120

#: Commands that are run once before, so that their modules are there.
LOADED = ("check", "plan", "mesh", "fmt", "diff")
_SMALL = 'meshlang = 1\nmodel = "llama/tiny"\ninclude = ["preset:tensor_parallel"]\n[mesh]\ntp = 2\n[sizes]\nbatch=0\n'


def _load() -> None:
    """A spec with a finding, through every command."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.toml"
        for text in (_SMALL, _SMALL.replace("batch=0", "batch=8"), "meshlang ="):
            path.write_text(text)
            for word in LOADED:
                _quietly([word, str(path), *([str(path)] if word == "diff" else [])])


def _quietly(words: list[str]) -> None:
    out = os.dup(1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        try:
            main(words, standalone_mode=True)
        except SystemExit:
            sys.stdout.flush()
        finally:
            os.dup2(out, 1)
            os.close(out)


def _child(words: list[str], folder: str, out: int, err: int, anew: bool) -> None:
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.chdir(folder)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR, PROCESSOR))
    signal.alarm(CLOCK)
    if anew:
        os.execv(sys.executable, [sys.executable, "-m", "meshlang", *words])
    try:
        main(words, standalone_mode=True)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 70
    else:
        code = 0
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(words: list[str], folder: str, anew: bool) -> dict[str, object]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _child(words, folder, out.fileno(), err.fileno(), anew)
        _, status, usage = os.wait4(child, 0)
        out.seek(0)
        err.seek(0)
        return {
            "code": os.waitstatus_to_exitcode(status),
            "out": out.read().decode(errors="replace"),
            "err": err.read().decode(errors="replace"),
            "seconds": usage.ru_utime + usage.ru_stime,
            "memory": usage.ru_maxrss * 1024,
        }


if __name__ == "__main__":
    _load()
    for line in sys.stdin:
        print(json.dumps(_run(**json.loads(line))), flush=True)
