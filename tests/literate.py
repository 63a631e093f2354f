"""Markdown that is executed: files in fenced blocks, a command line, and what it prints, word for word.

    ```toml                     the file spec.toml; "```toml base.toml" names another, in any language
    ```console                  $ meshlang check spec.toml; or a program of the case: $ python show.py
    ```text                     all that it prints; without the block it prints nothing

A case is a section `## Title`. Files before the first section belong to every case. A file named
NAME.dist-info/... makes the folder an installed distribution: such a case runs as its own process.
With MESHLANG_UPDATE_SPECS=1 the text blocks are written anew; the diff is then read by hand.
"""

from __future__ import annotations

import io
import os
import re
import runpy
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterable, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path

from click.testing import CliRunner

from meshlang.cli import main

ROOT = Path(__file__).parents[1]
UPDATE = os.environ.get("MESHLANG_UPDATE_SPECS") == "1"
DEFAULT = "meshlang check spec.toml"

_BLOCK = re.compile(r"^```(?P<lang>\w+)(?: (?P<name>[^\n]+))?\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run: files, a command line, and what is printed."""

    title: str
    files: Mapping[str, bytes]
    command: str = DEFAULT
    expected: str = ""

    @property
    def exit_code(self) -> int:
        """0: fine. 1: findings, or a golden file that differs. 2: wrong usage."""
        if self.command.startswith("python ") or not self.expected:
            return 0
        if self.expected.startswith("Usage: "):
            return 2
        return 1 if re.search(r"^error\[|^[^:\s]+:\d+:\d+: error\[|`--update`", self.expected, re.MULTILINE) else 0

    @property
    def codes(self) -> set[str]:
        """Codes of the findings that are printed."""
        return set(re.findall(r"error\[([a-z0-9-]+)\]", self.expected))


@dataclass(kw_only=True)
class _Section:
    title: str
    files: dict[str, bytes] = field(default_factory=dict)
    command: str | None = None
    expected: str = ""

    def case(self, shared: Mapping[str, bytes]) -> Case:
        files = {**shared, **self.files}
        return Case(title=self.title, files=files, command=self.command or DEFAULT, expected=self.expected)


def cases(text: str) -> list[Case]:
    """Every case of a document, in order."""
    before, *sections = _sections(text)
    return [section.case(before.files) for section in sections if section.command or section.files]


def page(text: str) -> tuple[Case, Case]:
    """(broken, mended) of a page on a code: what stands before `## Mended`, and the same with its files over it."""
    first, second = _sections(text)
    broken = first.case({})
    mended = second.case(broken.files)
    return broken, replace(mended, command=second.command or broken.command)


def _sections(text: str) -> list[_Section]:
    titles = [("", 0), *((match[1], match.end()) for match in re.finditer(r"^## (.*)$", text, re.MULTILINE))]
    ends = [*(start for _, start in titles[1:]), len(text)]
    return [_section(title, text[start:end]) for (title, start), end in zip(titles, ends, strict=True)]


def _section(title: str, text: str) -> _Section:
    section = _Section(title=title)
    for match in _BLOCK.finditer(text):
        lang, name, body = match["lang"], match["name"], match["text"]
        if lang == "console":
            section.command = body.strip().removeprefix("$ ")
        elif lang == "text" and name is None:
            section.expected = body
        else:
            name, _, coding = (name or "spec.toml").partition(" ")
            section.files[name] = body.encode(coding or "utf-8")
    return section


def run(case: Case, folder: Path) -> tuple[int, str]:
    """(exit code, everything printed) of a case, with its files in `folder` and paths relative to it."""
    for name, data in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    program, *words = shlex.split(case.command)
    if any(".dist-info/" in name for name in case.files):
        start = ["-c", "from meshlang.cli import main; main(prog_name='meshlang')"]
        code, text = _process([*(start if program == "meshlang" else []), *words], folder)
    else:
        code, text = {"meshlang": meshlang, "python": _script}[program](words, folder)
    return code, text.replace(f"{ROOT}/", "").replace(f"{folder}/", "")


def meshlang(words: Iterable[str], folder: Path) -> tuple[int, str]:
    """(exit code, everything printed) of a command of ours, run in `folder` by this process."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        result = CliRunner().invoke(main, list(words), prog_name="meshlang", catch_exceptions=False)
    finally:
        os.chdir(before)
    return result.exit_code, result.output


def _script(words: Iterable[str], folder: Path) -> tuple[int, str]:
    """The same of a Python program; here, since a process of its own would load torch anew."""
    (path,) = words
    out, err, code = io.StringIO(), io.StringIO(), 0
    with chdir(folder), redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return code, out.getvalue() + err.getvalue()


def _process(words: Iterable[str], folder: Path) -> tuple[int, str]:
    paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def updated(text: str, title: str, output: str) -> str:
    """The document with the text block of one case written anew."""
    start = re.search(rf"^## {re.escape(title)}$", text, re.MULTILINE)
    assert start is not None, title
    end = re.search(r"^## ", text[start.end() :], re.MULTILINE)
    stop = start.end() + end.start() if end else len(text)
    return text[: start.end()] + with_output(text[start.end() : stop], output) + text[stop:]


def with_output(section: str, output: str) -> str:
    """A section with its text block replaced, put after its last other block, or dropped when nothing is printed."""
    block = f"```text\n{output}```\n" if output else ""
    old = re.search(r"^```text\n.*?^```\n", section, re.DOTALL | re.MULTILINE)
    if old is not None:
        return section[: old.start()] + block + section[old.end() :].removeprefix("" if block else "\n")
    if not block:
        return section
    last = list(_BLOCK.finditer(section))[-1]
    return section[: last.end()] + f"\n\n{block.rstrip()}" + section[last.end() :]
