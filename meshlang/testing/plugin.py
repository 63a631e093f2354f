"""pytest plugin: the `[[check]]` tables of specs are test items.

    [tool.pytest.ini_options]
    meshlang_specs = "specs"            # folders and files; without it the plugin does nothing
    meshlang_ranks = "8"                # for specs whose mesh has a "rest" axis and no [launch] ranks

Each spec gives one item `plan`, which fails with all findings, and, when the plan is made, one
item a check. A file that does not set `meshlang` is a part that others include, and no item.
`--meshlang-ranks 4,8` makes each plan for both. Nothing here loads torch; without
`meshlang_specs` nothing of meshlang is loaded either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..compiler import Request
    from ..diagnostics import Diagnostic
    from ..language.spec import Check, Spec
    from ..plan.ir import Plan

_IS_SPEC = re.compile(r"""^\s*["']?meshlang["']?\s*=""", re.MULTILINE)


class FoundError(Exception):
    """Findings of a spec, or of one of its checks."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        super().__init__()
        self.diagnostics = tuple(diagnostics)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The two ini options and the flag."""
    parser.addini("meshlang_specs", "folders and files with specs whose checks are tests", type="paths", default=[])
    parser.addini("meshlang_ranks", 'ranks of specs with a "rest" axis, such as "4,8"', default="")
    parser.getgroup("meshlang").addoption(
        "--meshlang-ranks", metavar="N,N", help='ranks of specs with a "rest" axis, over `[launch]` and the ini file'
    )


def pytest_configure(config: pytest.Config) -> None:
    """The specs are collected along when pytest is not told what to collect."""
    folders = _folders(config)
    if not folders:
        return
    for option, text in (("--meshlang-ranks", _flag(config)), ("meshlang_ranks", config.getini("meshlang_ranks"))):
        _numbers(option, text)
    for path in folders:
        if not path.exists():
            raise pytest.UsageError(f"meshlang_specs: there is no {path}")
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        args = [(config.invocation_params.dir / arg).resolve() for arg in config.args]
        config.args += [str(path) for path in folders if not any(path.is_relative_to(arg) for arg in args)]


def _folders(config: pytest.Config) -> list[Path]:
    return [path.resolve() for path in config.getini("meshlang_specs")]


def _flag(config: pytest.Config) -> str:
    return config.getoption("--meshlang-ranks") or ""


def _numbers(option: str, text: str) -> tuple[int, ...]:
    words = text.split(",") if text.strip() else []
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise pytest.UsageError(f'{option}: "{text}" is no list of ranks, such as 4,8')
    return tuple(int(word) for word in words)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A spec under one of the folders."""
    if file_path.suffix != ".toml":
        return None
    path = file_path.resolve()
    if not any(path.is_relative_to(folder) for folder in _folders(parent.config)):
        return None
    if _IS_SPEC.search(file_path.read_text(encoding="utf-8", errors="replace")) is None:
        return None
    return SpecFile.from_parent(parent, path=file_path)


class SpecFile(pytest.File):
    """One spec: for each number of ranks its plan, and its checks."""

    def collect(self) -> Iterator[pytest.Item]:
        """Items in the order of the file."""
        from ..compiler import Request, load
        from ..diagnostics import SpecError

        request = Request.of(self.path)
        try:
            spec = load(request)
        except SpecError:
            yield self._item("plan", _findings(request), 0)
            return
        ranks = self._ranks(spec)
        for number in ranks:
            mark = f"[{number} ranks]" if len(ranks) > 1 else ""
            yield from self._items(spec, replace(request, ranks=number), mark)

    def _items(self, spec: Spec, request: Request, mark: str) -> Iterator[pytest.Item]:
        plan, found = _planned(spec, request)
        yield self._item(f"plan{mark}", found, 0)
        for check in spec.checks if plan is not None else ():
            yield self._item(f"{check.name.value}{mark}", _broken(check, plan), check.span.line - 1)

    def _item(self, name: str, found: tuple[Diagnostic, ...], line: int) -> pytest.Item:
        return SpecItem.from_parent(self, name=name, found=found, line=line)

    def _ranks(self, spec: Spec) -> tuple[int | None, ...]:
        """Numbers of ranks to plan for; None is what the spec itself says."""
        flag = _numbers("--meshlang-ranks", _flag(self.config))
        ini = _numbers("meshlang_ranks", self.config.getini("meshlang_ranks"))
        if all(entry.size is not None for entry in spec.mesh):
            return (None,)
        said = spec.launch is not None and spec.launch.ranks is not None
        return flag or (None,) if said else flag or ini or (None,)


def _findings(request: Request) -> tuple[Diagnostic, ...]:
    from ..compiler import check

    return check(request)


def _planned(spec: Spec, request: Request) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """The plan, or what stands against it; the checks are set aside, for each is an item of its own."""
    from ..compiler import plan_of, resolved_of
    from ..diagnostics import SpecError

    try:
        resolved = resolved_of(spec, request)
        bare = replace(spec, checks=())
        return plan_of(bare, replace(resolved, spec=bare)), ()
    except SpecError as error:
        tried = {(each.code, each.message): each for each in _findings(request)}
        return None, tuple(tried.get((each.code, each.message), each) for each in error.diagnostics)


def _broken(check: Check, plan: Any) -> tuple[Diagnostic, ...]:
    from ..plan.promises import broken

    return tuple(broken(check, plan))


class SpecItem(pytest.Item):
    """Holds when nothing was found."""

    def __init__(self, *, found: tuple[Diagnostic, ...], line: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.found = found
        self.line = line

    def runtest(self) -> None:
        """Fail with the findings."""
        if self.found:
            raise FoundError(self.found)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The findings as `meshlang check` shows them."""
        if not isinstance(excinfo.value, FoundError):
            return super().repr_failure(excinfo, style)
        from ..render import render

        return render(excinfo.value.diagnostics)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the check stands."""
        return self.path, self.line, self.name
