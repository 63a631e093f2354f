"""Pages of docs/ that are executed: their blocks in order, in one folder, as a reader would do it.

    ```toml run.toml            the file of that name, in any language; with ` +` behind the name its end
    ```toml                     a spec on its own, in which nothing is found
    ```python                   a script on its own, which ends well
    ```console                  $ commands, each with all that it prints; a line `...` is any number of lines
    ```sh                       commands whose output is not shown
    ```text, and others         to be read only

What a launch prints is compared line by line in the order shown, decimals within 0.15, since losses
depend on the text that is trained on. Times are left out of every comparison. With
MESHLANG_UPDATE_SPECS=1 a block that differs is written anew; the diff is then read by hand.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from literate import ROOT, UPDATE, meshlang

DOCS = ROOT / "docs"
#: Every page that is written by hand.
PAGES = sorted(path for path in DOCS.rglob("*.md") if path.relative_to(DOCS).parts[0] not in ("reference", "_build"))

_BLOCK = re.compile(
    r"^```(?P<lang>\w+)(?: (?P<name>[^\s]+)(?P<more> \+)?)?\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_TIME = re.compile(r"\bin \d+\.\d+s( \([\d:]+\))?")
_DECIMAL = re.compile(r"\d+\.\d+")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")

#: A shell: (command) -> (exit code, all that was printed).
Shell = Callable[[str], tuple[int, str]]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing that a reader does.

    Attributes:
        kind: "file" and "end" write `text`; "run" runs the command `text`; "quiet" too, and nothing is said of output.
        place: where the step's lines stand in the page.
    """

    kind: Literal["file", "end", "run", "quiet"]
    text: str
    name: str = ""
    shown: str = ""
    place: tuple[int, int] = (0, 0)

    @property
    def launches(self) -> bool:
        """True when it starts ranks: a launch that is not refused."""
        return self.kind in ("run", "quiet") and "meshlang launch " in self.text and "error[" not in self.shown

    @property
    def fails(self) -> bool:
        """True when the page shows a failure."""
        return bool(re.search(r"^error\[|^Usage: |: error\[|`--update`|^FAILED |^::error", self.shown, re.MULTILINE))


def steps(text: str) -> Iterator[Step]:
    """What a page has its reader do, in order."""
    for block in _BLOCK.finditer(text):
        lang, name, body = block["lang"], block["name"], block["text"]
        if name:
            yield Step(kind="end" if block["more"] else "file", name=name, text=body)
        elif lang == "console":
            yield from _commands(body, block.start("text"))
        elif lang == "sh":
            yield from (Step(kind="quiet", text=line) for line in body.splitlines() if line.strip())
        elif lang == "toml":
            yield Step(kind="file", name="spec.toml", text=body)
            yield Step(kind="run", text="meshlang check spec.toml")
        elif lang == "python":
            yield Step(kind="file", name="script.py", text=body)
            yield Step(kind="quiet", text="python script.py")


def _commands(body: str, start: int) -> Iterator[Step]:
    starts = [*(match.start() for match in re.finditer(r"^\$ ", body, re.MULTILINE)), len(body)]
    assert starts[0] == 0, f"a console block begins with `$ `: {body}"
    for low, high in pairwise(starts):
        command, _, shown = body[low:high].partition("\n")
        yield Step(kind="run", text=command.removeprefix("$ "), shown=shown, place=(start + low, start + high))


def walk(page: Path, folder: Path, shell: Shell, *, leave: Callable[[Step], bool] = lambda step: False) -> None:
    """Do what a page says in a folder, and hold what is printed against what it shows."""
    text = page.read_text(encoding="utf-8")
    edits: list[tuple[tuple[int, int], str]] = []
    if "examples/" in "".join(step.text for step in steps(text)):
        shutil.copytree(ROOT / "examples", folder / "examples")
    for step in steps(text):
        if leave(step):
            continue
        if step.kind in ("file", "end"):
            _write(folder / step.name, step)
            continue
        code, printed = shell(step.text)
        printed = printed.replace(f"{folder}/", "").replace(f"{ROOT}/", "")
        if UPDATE and step.kind == "run" and not step.launches and not agrees(step, printed):
            edits.append((step.place, f"$ {step.text}\n{printed}"))
            continue
        assert code == 0 or step.fails, f"{page.name}: `{step.text}` ended with {code}:\n{printed[-4000:]}"
        assert step.kind == "quiet" or agrees(step, printed), difference(step, printed)
        assert bool(code) == step.fails, f"{page.name}: `{step.text}` ended with {code}"
    for (low, high), new in reversed(edits):
        text = text[:low] + new + text[high:]
    if edits:
        page.write_text(text, encoding="utf-8")


def _write(path: Path, step: Step) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text(encoding="utf-8") if step.kind == "end" else ""
    path.write_text(before + ("\n" if before else "") + step.text, encoding="utf-8")


def difference(step: Step, printed: str) -> str:
    """Both texts, for a reader of a failed test."""
    return f"`{step.text}` printed\n{printed}\nand the page shows\n{step.shown}"


def agrees(step: Step, printed: str) -> bool:
    """Does the page show what was printed?"""
    if step.launches:
        return _launched(_bare(step.shown), _bare(printed))
    parts = [re.escape(part) for part in re.split(r"^\.\.\.\n", _bare(step.shown), flags=re.MULTILINE)]
    return re.fullmatch("(?s:.*)".join(parts), _bare(printed)) is not None


def _bare(text: str) -> str:
    """Without colours, times and blanks at the ends of lines."""
    lines = _TIME.sub("in 0.00s", _COLOR.sub("", text)).splitlines(keepends=True)
    return "".join(line.rstrip() + "\n" for line in lines)


def _launched(shown: str, printed: str) -> bool:
    """Every line shown is there, in this order: its words in their order, its decimals within 0.15."""
    left = iter(printed.splitlines())
    return all(any(_logged(line, each) for each in left) for line in shown.splitlines() if line != "...")


def _logged(shown: str, line: str) -> bool:
    pattern = ".*?".join(r"(\d+\.\d+)" if _DECIMAL.fullmatch(word) else re.escape(word) for word in shown.split())
    found = re.search(rf"(?<!\S){pattern}(?!\S)", line)
    said = [float(word) for word in shown.split() if _DECIMAL.fullmatch(word)]
    return found is not None and all(abs(float(a) - b) <= 0.15 for a, b in zip(found.groups(), said, strict=True))


def inside(folder: Path) -> Shell:
    """Commands run in `folder`: meshlang's in this process, others in a shell; what pip installs lies apart."""
    site = folder / ".site"

    def run(command: str) -> tuple[int, str]:
        if command.startswith("pip install "):
            return _shell(f"{sys.executable} -m {command} -qq {_OFFLINE} --target {site}", folder, site)
        if command.startswith("meshlang ") and not site.exists() and not re.search(r"[|&<>;$]", command):
            return meshlang(shlex.split(command)[1:], folder)
        return _shell(command, folder, site)

    return run


_OFFLINE = "--no-deps --no-build-isolation --no-index --disable-pip-version-check"


def _shell(command: str, folder: Path, site: Path) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(Path(sys.executable).parent) | ({"PYTHONPATH": str(site)} if site.exists() else {}),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode, done.stdout


#: Where bytecode lies that is not in the folders of its sources: without it each process would compile torch anew.
_BYTECODE = "PYTHONPYCACHEPREFIX"


def environment(programs: Path) -> dict[str, str]:
    """Of a shell that finds these programs first, and prints alike everywhere; bytecode that is kept apart stays so."""
    ours = ("PYTEST", "MESHLANG", "PYTHON")
    kept = {key: value for key, value in os.environ.items() if key == _BYTECODE or not key.startswith(ours)}
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return kept | {"PATH": path, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}


class Bash:
    """One bash for a whole walk: what `cd` and `activate` change stays."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment(programs),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def __call__(self, command: str) -> tuple[int, str]:
        """Run a command to its end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '\\n%s %s\\n' {self._MARK} $?\n")
        self.process.stdin.flush()
        lines: list[str] = []
        for line in self.process.stdout:
            if line.startswith(self._MARK):
                return int(line.split()[1]), "".join(lines).removesuffix("\n")
            lines.append(line)
        raise AssertionError(f"the shell ended in `{command}`:\n{''.join(lines)}")

    def close(self) -> None:
        """End the shell."""
        self.process.communicate("exit\n", timeout=30)

    _MARK = "--end-of-command--"
