"""Imports point one way: the table, held against every file; and what loads no torch, in a process."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

#: Parts of meshlang, low to high: a part imports from its own row and those above it here.
#: `plan.stages` asks schedules, and stands in a row of its own need.
ROWS: tuple[tuple[str, ...], ...] = (
    ("source", "diagnostics", "mesh", "placement", "near", "amounts"),
    ("registry", "excerpt", "render", "fold", "fixes", "garbage"),
    ("language",),
    ("card", "pipeline"),
    ("plan",),
    ("strategy",),
    ("", "compiler", "report", "plan.stages"),
    ("format", "foreign", "suggest"),
    ("lowering",),
    ("runtime",),
    ("testing", "cli", "__main__"),
)

#: What a part imports beyond the standard library, wherever in a file it does.
OTHERS: dict[str, set[str]] = {
    "language": {"tomli"},
    "report": {"matplotlib"},
    "format": {"tomli", "tomlkit"},
    "lowering": {"torch"},
    "runtime": {"torch", "torchtitan", "spmd_types", "tyro", "transformers"},
    "testing": {"torch", "torchtitan", "spmd_types", "pytest"},
    "cli": {"click"},
}

#: Parts of which these files are as light as what is below lowering: heavy imports are inside functions.
LIGHT = {
    "cli": tuple(
        path.relative_to(ROOT / "meshlang").as_posix() for path in sorted((ROOT / "meshlang/cli").glob("*.py"))
    ),
    "testing": ("testing/__init__.py", "testing/plugin.py", "testing/placements.py", "testing/contract.py"),
}

HEAVY = {"torch", "torchtitan", "spmd_types", "numpy", "matplotlib"}

#: All that a strategy or schedule of ours imports from meshlang.
FOR_PLUGINS = {"strategy", "plan", "pipeline", "mesh", "placement", "diagnostics"}


@dataclass(frozen=True)
class Import:
    """One module that a file imports, by its full name; `inside` a function or not."""

    file: str
    line: int
    module: str
    inside: bool

    @property
    def top(self) -> str:
        """The package it belongs to."""
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.module}"


def imports(path: Path, package: str, root: Path) -> Iterator[Import]:
    """Every import of a file, those in functions and under TYPE_CHECKING too."""
    file = path.relative_to(ROOT).as_posix()
    here = [package, *path.relative_to(root).parent.parts]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(path.read_text())
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, functions) for n in ast.walk(f)}
    for node in ast.walk(tree):
        for module in _modules(node, here, root):
            yield Import(file, node.lineno, module, id(node) in inside)  # pyright: ignore[reportAttributeAccessIssue]


def _modules(node: ast.AST, here: list[str], root: Path) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = ".".join(here[: len(here) - node.level + 1]) if node.level else ""
        module = ".".join(filter(None, (base, node.module)))
        for alias in node.names:  # `from .. import placement` imports the module placement
            file = root.joinpath(*module.split(".")[1:], f"{alias.name}.py")
            is_module = module.partition(".")[0] == here[0] and (file.exists() or file.with_suffix("").is_dir())
            yield f"{module}.{alias.name}" if is_module else module


def _files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def _all(folder: str, package: str) -> list[Import]:
    return [each for path in _files(folder) for each in imports(path, package, ROOT / folder)]


def part(name: str) -> str:
    """The part of meshlang that a dotted name below it belongs to, such as "plan" for "plan.ir"."""
    known = sorted((each for row in ROWS for each in row if each), key=len, reverse=True)
    found = [each for each in known if name == each or name.startswith(f"{each}.")]
    assert found or not name, f"{name} is in no row of the table: say where it belongs"
    return found[0] if found else ""


def _row(name: str) -> int:
    return next(index for index, row in enumerate(ROWS) if part(name) in row)


def _name(file: str) -> str:
    """The dotted name of a file below meshlang."""
    parts = Path(file).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MESHLANG = _all("meshlang", "meshlang")


def test_there_is_something_to_hold() -> None:
    """Relative and absolute imports are read as full names, at every depth."""
    found = {(each.file, each.module) for each in MESHLANG}
    assert ("meshlang/compiler.py", "meshlang.language.read") in found
    assert ("meshlang/language/reader.py", "meshlang.diagnostics") in found
    assert ("meshlang/lowering/layout.py", "meshlang.placement") in found
    assert any(each.inside for each in MESHLANG)


def test_meshlang_imports_downwards() -> None:
    """No part imports from a part above it."""
    ours = [each for each in MESHLANG if each.top == "meshlang"]
    wrong = [
        str(each) for each in ours if _row(_name(each.file)) < _row(each.module.removeprefix("meshlang").lstrip("."))
    ]
    assert wrong == []


def test_cli_and_testing_do_not_meet() -> None:
    """Of the two at the top, neither imports the other."""
    pairs = {(part(_name(each.file)), each.module.split(".")[1]) for each in MESHLANG if "." in each.module}
    assert not pairs & {("cli", "testing"), ("testing", "cli")}


def test_other_packages_stay_in_their_part() -> None:
    """Below lowering there is the standard library and tomli; torchtitan is in runtime and testing only."""
    wrong = [
        str(each)
        for each in MESHLANG
        if each.top not in sys.stdlib_module_names
        and each.top != "meshlang"
        and each.top not in OTHERS.get(part(_name(each.file)), set())
    ]
    assert wrong == []


@pytest.mark.parametrize("file", [file for files in LIGHT.values() for file in files])
def test_light_files_load_heavy_ones_inside(file: str) -> None:
    """The command line, the pytest plugin and the assertions import torch, lowering and runtime in functions only."""
    checking = _type_checking(ROOT / "meshlang" / file)
    wrong = [
        str(each)
        for each in MESHLANG
        if each.file == f"meshlang/{file}" and not each.inside and each.line not in checking
        if each.top in HEAVY or each.module.startswith(("meshlang.lowering", "meshlang.runtime"))
    ]
    assert wrong == []


def _type_checking(path: Path) -> set[int]:
    """Lines under `if TYPE_CHECKING`."""
    blocks = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    ]
    return {line for block in blocks for line in range(block.lineno, (block.end_lineno or 0) + 1)}


def test_optional_packages_load_inside() -> None:
    """What an extra brings is imported by the function that needs it."""
    extras = {"matplotlib", "transformers"}
    assert [str(each) for each in MESHLANG if each.top in extras and not each.inside] == []


def test_strategies_know_the_plan_only() -> None:
    """A plugin of ours imports the words of plugins and its own folder; *_ops.py also torch and lowering."""
    assert [str(each) for each in _all("strategies", "meshlang_strategies") if not _for_plugins(each)] == []


def _for_plugins(each: Import) -> bool:
    ops = each.file.endswith("_ops.py")
    if each.top == "meshlang":
        return each.module.split(".")[1] in (FOR_PLUGINS | {"lowering"} if ops else FOR_PLUGINS)
    return each.top in sys.stdlib_module_names or each.top == "meshlang_strategies" or (ops and each.top == "torch")


def test_plugins_do_not_import_their_torch_part() -> None:
    """A plugin names its *_ops.py by import path, and never imports it."""
    ours = [each for each in _all("strategies", "meshlang_strategies") if not each.file.endswith("_ops.py")]
    assert [str(each) for each in ours if each.module.endswith("_ops")] == []


def test_models_know_no_mesh() -> None:
    """A model imports torch and torchtitan, never torch.distributed, and never meshlang.

    torch's checkpoint files are read by a module that lies there, and that needs no process group.
    """
    allowed = {"torch", "torchtitan", "meshlang_models"}
    files = "torch.distributed.checkpoint"
    wrong = [
        str(each)
        for each in _all("models", "meshlang_models")
        if (each.top not in sys.stdlib_module_names and each.top not in allowed)
        or (each.module.startswith("torch.distributed") and not each.module.startswith(files))
    ]
    assert wrong == []


def test_meshlang_names_no_model_and_no_strategy() -> None:
    """meshlang meets models and strategies by entry point."""
    names = ("meshlang_models", "meshlang_strategies")
    assert [str(each) for each in MESHLANG if each.top in names] == []


SPEC = f"""\
meshlang = 1
model = "{ROOT}/models/llama/card.toml#tiny"
include = ["preset:tensor_parallel", "preset:fsdp"]
[mesh]
dp = 2
tp = 2
"""

SUGGEST = "suggest llama/tiny --ranks 1 --memory 1GiB --seq 256 --batch 1 -n 1"

LOADED = f"""
import sys
print(*sorted({HEAVY!r} & set(sys.modules)))
"""


def _loaded(code: str) -> list[str]:
    """Heavy packages that some code has loaded, in a process of its own."""
    path = [str(Path(entry).resolve()) for entry in sys.path if entry]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {[str(ROOT), *path]!r}\n{code}{LOADED}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize(
    "code",
    [
        "import meshlang",
        "import meshlang.compiler",
        "import meshlang.cli",
        "import meshlang.testing.plugin, meshlang.testing.placements, meshlang.testing.contract",
        f"from meshlang.compiler import *; assert not check(Request(source=Source(name='s', text={SPEC!r})))",
        f"from meshlang.compiler import *; compile(Request(source=Source(name='s', text={SPEC!r})))",
        "import meshlang.report.page.page, meshlang.report.page.contents",
        f"from meshlang.cli import main; main({SUGGEST!r}.split(), standalone_mode=False)",
    ],
    ids=["meshlang", "compiler", "cli", "testing", "check", "plan", "report", "suggest"],
)
def test_torch_is_not_loaded(code: str) -> None:
    """Importing meshlang, checking a spec and planning it load no torch, no torchtitan, no numpy."""
    assert _loaded(code) == []


def test_the_process_would_tell() -> None:
    """A package that is loaded is seen."""
    assert _loaded("import numpy") == ["numpy"]


def test_public_names_are_those_of_their_modules() -> None:
    """`import meshlang` alone loads none of its modules; each public name is there, and no torch with it."""
    show = (
        "import sys, meshlang\n"
        "assert not [name for name in sys.modules if name.startswith('meshlang.')]\n"
        "from meshlang import *\n"
        "from meshlang.compiler import Request as one, compile as other\n"
        "assert (Request, compile) == (one, other) and set(meshlang.__all__) <= set(dir(meshlang)) & set(globals())\n"
        "assert not hasattr(meshlang, 'compose') and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", show], check=True, timeout=60)
