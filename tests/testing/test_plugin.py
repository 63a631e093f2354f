"""The checks of specs as test items."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest_plugins = ("pytester",)

CARD = Path(__file__).parents[2] / "models" / "llama" / "card.toml"

SPEC = f"""\
meshlang = 1
model = "{CARD}#tiny"
include = ["preset:tensor_parallel", "preset:fsdp"]

[mesh]
dp = "rest"
tp = 2

[[check]]
name = "wo is row-parallel"
tensor = "layers.*.attention.wo"
expect = {{ tp = "S(1)", dp = "stored" }}

[[check]]
name = "norms are whole"
tensor = "norm"
expect = {{ tp = "R" }}
"""


@pytest.fixture
def specs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose specs are in the folder specs, for 4 ranks."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\nmeshlang_specs = specs\nmeshlang_ranks = 4\n")
    folder = pytester.mkdir("specs")
    (folder / "spec.toml").write_text(SPEC)
    return folder


def _run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """A run with the plugin as the only one beside pytest's own."""
    return pytester.runpytest("-p", "meshlang.testing.plugin", *args)


def test_each_check_is_an_item(pytester: pytest.Pytester, specs: Path) -> None:
    """A spec gives its plan and its checks, in the order of the file."""
    result = _run(pytester, "-v")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines_random(
        [
            "specs/spec.toml::plan PASSED*",
            "specs/spec.toml::wo is row-parallel PASSED*",
            "specs/spec.toml::norms are whole PASSED*",
        ]
    )


def test_a_broken_check_shows_its_place(pytester: pytest.Pytester, specs: Path) -> None:
    """A failing check shows the finding with the line of the spec, and no Python."""
    (specs / "spec.toml").write_text(SPEC.replace('tp = "S(1)"', 'tp = "S(0)"'))
    result = _run(pytester)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "error?check-failed?: wo is row-parallel: * S(1) on `tp`, not S(0)*",
            "*spec.toml:12:17",
            '12 | expect = { tp = "S(0)", dp = "stored" }',
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*plugin.py*")


def test_a_spec_with_findings_is_one_item(pytester: pytest.Pytester, specs: Path) -> None:
    """All findings of a spec come in the one item `plan`, and its checks are no items."""
    text = SPEC.replace("[[check]]", '[within."layer.*"]\nheads = "tp"\n\n[[check]]', 1).replace(
        'tensor = "norm"', 'tensor = "nrm"'
    )
    (specs / "spec.toml").write_text(text)
    result = _run(pytester, "-v")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["specs/spec.toml::plan FAILED*", "error?no-match?*`layer.[*]`*", "error?no-match?*`nrm`*"]
    )


def test_a_text_that_is_no_toml_is_a_finding(pytester: pytest.Pytester, specs: Path) -> None:
    """A spec that cannot be read is the item `plan` with the scanner's finding."""
    (specs / "spec.toml").write_text("meshlang = 1\n[mesh\n")
    result = _run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["error?syntax?*"])


def test_ranks_come_from_the_flag(pytester: pytest.Pytester, specs: Path) -> None:
    """--meshlang-ranks plans each spec that has a "rest" axis for each number, and names it."""
    (specs / "fixed.toml").write_text(SPEC.replace('"rest"', "3"))
    result = _run(pytester, "-v", "--meshlang-ranks", "2,8")
    result.assert_outcomes(passed=9)
    result.stdout.fnmatch_lines_random(
        [
            "specs/fixed.toml::plan PASSED*",
            "specs/spec.toml::plan?2 ranks? PASSED*",
            "specs/spec.toml::norms are whole?8 ranks? PASSED*",
        ]
    )


def test_ranks_of_the_spec_win_over_the_ini(pytester: pytest.Pytester, specs: Path) -> None:
    """[launch] ranks decides over meshlang_ranks, which would not fit; the flag decides over both."""
    pytester.makeini("[pytest]\nmeshlang_specs = specs\nmeshlang_ranks = 3\n")
    (specs / "spec.toml").write_text(SPEC + "\n[launch]\nranks = 6\n")
    _run(pytester).assert_outcomes(passed=3)
    result = _run(pytester, "--meshlang-ranks=5")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["error?rest-uneven?*"])


def test_a_spec_without_ranks_is_a_finding(pytester: pytest.Pytester, specs: Path) -> None:
    """Where nobody says how many ranks fill a "rest" axis, that is the finding."""
    pytester.makeini("[pytest]\nmeshlang_specs = specs\n")
    result = _run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["error?ranks-needed?*"])


def test_parts_and_other_files_are_no_items(pytester: pytest.Pytester, specs: Path) -> None:
    """A file that does not set `meshlang`, and a spec outside of the folders, are left alone."""
    (specs / "part.toml").write_text('[place]\nbatch = "dp"\n')
    (specs / "notes.md").write_text("meshlang = 1\n")
    (pytester.path / "outside.toml").write_text(SPEC)
    _run(pytester).assert_outcomes(passed=3)


def test_folders_join_other_test_paths(pytester: pytest.Pytester, specs: Path) -> None:
    """Specs are collected beside testpaths, but not when pytest is told what to run."""
    pytester.makeini("[pytest]\nmeshlang_specs = specs\nmeshlang_ranks = 4\ntestpaths = tests\n")
    tests = pytester.mkdir("tests")
    (tests / "test_one.py").write_text("def test_one():\n    pass\n")
    _run(pytester).assert_outcomes(passed=4)
    _run(pytester, "tests").assert_outcomes(passed=1)
    _run(pytester, "specs/spec.toml::norms are whole").assert_outcomes(passed=1)


def test_wrong_options_are_wrong_usage(pytester: pytest.Pytester, specs: Path) -> None:
    """Ranks that are no numbers, and a folder that is not there, stop pytest with one line."""
    result = _run(pytester, "--meshlang-ranks=many")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(['*--meshlang-ranks: "many" is no list of ranks, such as 4,8'])
    pytester.makeini("[pytest]\nmeshlang_specs = absent\n")
    result = _run(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*meshlang_specs: there is no *absent"])


WATCH = """\
import sys

def test_modules():
    loaded = [name for name in sys.modules if name.partition(".")[0] in ("torch", "numpy", "tomli")]
    loaded += [name for name in sys.modules if name.startswith("meshlang.")]
    assert loaded == ["meshlang.testing", "meshlang.testing.plugin"]
"""


def test_unused_it_loads_nothing(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without meshlang_specs nothing of meshlang is loaded but the plugin itself, and no torch."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(WATCH)
    (pytester.path / "spec.toml").write_text(SPEC)
    result = pytester.run(sys.executable, "-m", "pytest", "-p", "meshlang.testing.plugin")
    result.assert_outcomes(passed=1)


def test_used_it_loads_no_torch(pytester: pytest.Pytester, specs: Path) -> None:
    """Checks are run without torch."""
    pytester.makepyfile("import sys\n\ndef test_modules():\n    assert 'torch' not in sys.modules\n")
    result = pytester.run(sys.executable, "-m", "pytest", "-p", "meshlang.testing.plugin", "specs", ".")
    result.assert_outcomes(passed=4)
