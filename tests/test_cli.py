"""Every command of the command line: what it prints, and 0, 1 or 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from meshlang.cli import codes, main
from meshlang.compiler import Request, compile
from meshlang.plan.data import from_json, to_json

EXAMPLES = Path(__file__).parents[1] / "examples"

GOOD = """meshlang = 1
include = ["preset:tensor_parallel", "preset:fsdp"]
model = "llama/tiny"

[mesh]
dp = "rest"
tp = 2

[sizes]
batch = 8
seq = 128

[topology.on.big.mesh]
tp = 4
"""
BAD = GOOD.replace("seq = 128", "sqe = 128")
RUN = [sys.executable, "-c", "from meshlang.cli import main; main(prog_name='meshlang')"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a good and a bad spec, which is the working directory."""
    (tmp_path / "good.toml").write_text(GOOD)
    (tmp_path / "bad.toml").write_text(BAD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def meshlang(*words: str) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(main, words, prog_name="meshlang", catch_exceptions=False)


def data(*words: str) -> Any:
    """The JSON that a command prints."""
    result = meshlang(*words)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


# check


def test_check_is_silent_on_a_good_spec(here: Path) -> None:
    """A spec without findings prints nothing and exits with 0."""
    result = meshlang("check", "good.toml", "--ranks", "4")
    assert (result.exit_code, result.output) == (0, "")


def test_check_exits_with_1_on_findings(here: Path) -> None:
    """Findings are printed to stdout, and the exit code is 1."""
    result = meshlang("check", "bad.toml", "--ranks", "4")
    assert result.exit_code == 1
    assert result.stdout.startswith("error[unknown-key]: ")
    assert result.stderr == ""


def test_check_takes_many_specs_and_ranks(here: Path) -> None:
    """Each spec is checked for each number of ranks, and a finding that comes twice is told once."""
    result = meshlang("check", "good.toml", "bad.toml", "--ranks", "4,6,8", "--format", "short")
    assert result.exit_code == 1
    assert [line.partition(": ")[0] for line in result.output.splitlines()] == ["good.toml:6:6", "bad.toml:11:1"]


def test_short_form_is_one_line_a_finding(here: Path) -> None:
    """`--format short` prints file:line:column, the code and the message."""
    result = meshlang("check", "bad.toml", "--ranks", "4", "--format", "short")
    assert result.output == "bad.toml:11:1: error[unknown-key]: `[sizes]` has no key `sqe`\n"


def test_json_form_is_a_list_of_findings(here: Path) -> None:
    """`--format json` prints a list; each finding has these keys, and places that count from 1."""
    (found,) = json.loads(meshlang("check", "bad.toml", "--ranks", "4", "--format", "json").output)
    assert list(found) == [
        *("code", "message", "file", "line", "column", "end_line", "end_column", "labels", "notes", "help")
    ]
    assert (found["file"], found["line"], found["column"], found["end_column"]) == ("bad.toml", 11, 1, 4)
    (help_,) = found["help"]
    assert [edit["text"] for edit in help_["edits"]] == ["seq"]


def test_json_form_of_no_findings_is_an_empty_list(here: Path) -> None:
    """An editor that asks for JSON gets JSON, also when there is nothing to say."""
    assert data("check", "good.toml", "--ranks", "4", "--format", "json") == []


def test_github_form_is_an_annotation_a_finding(here: Path) -> None:
    """`--format github` prints one workflow command for each finding, and nothing when there is none."""
    result = meshlang("check", "bad.toml", "--ranks", "4", "--format", "github")
    assert result.exit_code == 1
    assert result.output.startswith("::error file=bad.toml,line=11,endLine=11,col=1,endColumn=4,")
    assert result.output.count("\n") == 1
    assert meshlang("check", "good.toml", "--ranks", "4", "--format", "github").output == ""


@pytest.mark.parametrize("words", [["good.toml", "--ranks", "0"], ["good.toml", "--ranks", "x"], ["no.toml"], []])
def test_wrong_usage_exits_with_2(here: Path, words: list[str]) -> None:
    """What is wrong with the command line itself is told on stderr, with exit code 2."""
    result = meshlang("check", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr


@pytest.mark.parametrize("ranks", ["²", "8,", "-8", "9" * 5000, "8;9", "1e3"])
def test_odd_numbers_of_ranks_are_usage(here: Path, ranks: str) -> None:
    """Whatever stands for the number of ranks is a number, or wrong usage."""
    assert meshlang("check", "good.toml", f"--ranks={ranks}").exit_code == 2


@pytest.mark.parametrize("command", ["check", "plan", "mesh"])
def test_a_folder_is_no_spec(here: Path, command: str) -> None:
    """A folder instead of a file is wrong usage."""
    result = meshlang(command, str(here))
    assert result.exit_code == 2
    assert "is a directory" in result.output


@pytest.mark.parametrize("command", ["check", "plan", "mesh"])
def test_bytes_that_are_no_text_are_a_finding(here: Path, command: str) -> None:
    """A file that is no UTF-8 is a finding of every command, not a traceback."""
    (here / "bytes.toml").write_bytes(b"meshlang = 1\n\xff\xfe = 2\n")
    result = meshlang(command, "bytes.toml")
    assert result.exit_code == 1
    assert "error[not-utf8]" in result.output


@pytest.mark.parametrize("content", [b"", b"\x00", b"\xef\xbb\xbf", b"\r\n", b"[" * 5000, b"a=" + b"[" * 3000])
def test_any_bytes_are_findings(here: Path, content: bytes) -> None:
    """Whatever is in a file, `check` answers with findings."""
    (here / "odd.toml").write_bytes(content)
    assert meshlang("check", "odd.toml").exit_code == 1


def test_set_lies_over_the_file(here: Path) -> None:
    """`--set` changes one key, and a finding about it is shown in the item itself."""
    assert data("plan", "good.toml", "--ranks", "8", "--json", "--set", "mesh.tp=4")["mesh"][1]["size"] == 4
    result = meshlang("check", "good.toml", "--ranks", "8", "--set", "mesh.tp=0", "--format", "short")
    assert result.output == "--set:1:9: error[bad-value]: `tp` = 0 is less than 1\n"


def test_on_chooses_a_machine(here: Path) -> None:
    """`--on` lays a machine over the spec; one that is not described is a finding."""
    assert data("plan", "good.toml", "--ranks", "8", "--json", "--on", "big")["mesh"][1]["size"] == 4
    result = meshlang("check", "good.toml", "--ranks", "8", "--on", "small")
    assert result.exit_code == 1
    assert "error[unknown-machine]" in result.output


# plan


def test_plan_json_has_these_keys(here: Path) -> None:
    """The document of a plan has the keys that programs rely on."""
    plan = data("plan", "good.toml", "--ranks", "4", "--json")
    assert plan["ranks"] == 4
    assert [(axis["axis"], axis["size"]) for axis in plan["mesh"]] == [("dp", 2), ("tp", 2)]
    tensor = next(each for each in plan["tensors"] if each["fqn"] == "layers.0.attention.wo.weight")
    assert tensor["shape"] == [128, 128]
    assert tensor["dims"] == ["embed", "(heads head_dim)"]
    assert tensor["placements"] == {"dp": "stored S(0)", "tp": "S(1)"}
    assert tensor["local_shape"] == [64, 64]
    assert [origin["by"] for origin in tensor["origin"]] == ["card", "place"]
    assert {"kind", "axis", "where", "pass", "bytes", "count"} <= plan["collectives"][0].keys()
    assert plan["state_bytes"].keys() == {"parameters", "gradients", "optimizer", "total"}
    assert plan["state_bytes"]["total"] == 4 * plan["state_bytes"]["parameters"]


def test_plan_json_of_each_rank(here: Path) -> None:
    """`--rank` says whose local shapes are given; over all ranks they make up the whole."""
    rows = 0
    for rank in range(4):
        plan = data("plan", "good.toml", "--ranks", "4", "--json", "--rank", str(rank))
        assert plan["rank"] == rank
        tensor = next(each for each in plan["tensors"] if each["fqn"] == "tok_embeddings.weight")
        rows += tensor["local_shape"][0]
    assert rows == 264


@pytest.mark.parametrize("rank", ["4", "-1"])
def test_a_rank_beyond_the_mesh_is_usage(here: Path, rank: str) -> None:
    """A rank that the mesh does not have is wrong usage that names those it has."""
    result = meshlang("plan", "good.toml", "--ranks", "4", f"--rank={rank}")
    assert result.exit_code == 2
    assert "ranks 0 to 3" in result.stderr


def test_plan_text_names_the_rank(here: Path) -> None:
    """The text has a column of the local shapes of the rank that was asked for."""
    assert "rank 3" in meshlang("plan", "good.toml", "--ranks", "4", "--rank", "3").output


@pytest.mark.parametrize("command", [["plan"], ["mesh"], ["explain", "FQN"], ["diff", "good.toml"]])
def test_commands_on_a_bad_spec_print_its_findings(here: Path, command: list[str]) -> None:
    """A command that needs a plan prints the findings in its place, in the form that was asked for."""
    name, *more = command
    result = meshlang(name, "bad.toml", *more, "--ranks", "4", "--format", "json")
    assert result.exit_code == 1
    assert [each["code"] for each in json.loads(result.output)] == ["unknown-key"]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_plans_of_examples_read_back(path: Path) -> None:
    """from_json(to_json(plan)) == plan for every example."""
    plan = compile(Request.of(path))
    assert from_json(to_json(plan)) == plan


@pytest.mark.parametrize("mesh", [(1, 1), (1, 2), (2, 1), (2, 4), (4, 2), (8, 4)])
def test_plans_of_meshes_read_back(here: Path, mesh: tuple[int, int]) -> None:
    """from_json(to_json(plan)) == plan on meshes of several shapes, as each of their first ranks writes it."""
    sets = ("mesh.dp=" + str(mesh[0]), "mesh.tp=" + str(mesh[1]))
    plan = compile(Request.of("good.toml", sets=sets))
    for rank in range(min(plan.ranks, 3)):
        assert from_json(to_json(plan, rank=rank)) == plan


# explain, diff, mesh, schema, strategies


@pytest.mark.parametrize("code", codes())
def test_explain_prints_the_page_of_a_code(code: str) -> None:
    """Every code has a page under its name."""
    assert meshlang("explain", code).output.startswith(f"# {code}\n")


def test_explain_of_an_unknown_code_is_usage() -> None:
    """A code that there is not is wrong usage, with the nearest one."""
    result = meshlang("explain", "unknown-axes")
    assert result.exit_code == 2
    assert "did you mean `unknown-axis`?" in result.stderr


def test_explain_of_a_spec_alone_asks_for_a_name(here: Path) -> None:
    """A spec without a name is told how it is asked, and no list of codes."""
    result = meshlang("explain", "good.toml")
    assert result.exit_code == 2
    assert "`meshlang explain good.toml FQN`" in result.output
    assert "axis-cuts-twice" not in result.output


def test_explain_of_a_tensor_names_who_decided(here: Path) -> None:
    """`explain SPEC FQN` prints for each dimension the line that decided it, and each rank's part."""
    result = meshlang("explain", "good.toml", "lm_head.weight", "--ranks", "4")
    assert result.exit_code == 0
    assert "preset:tensor_parallel:8" in result.output
    assert "66 x 128" in result.output


def test_explain_of_an_unknown_tensor_is_usage(here: Path) -> None:
    """A tensor that the model lacks is wrong usage, with the nearest one."""
    result = meshlang("explain", "good.toml", "lm_haed.weight", "--ranks", "4")
    assert result.exit_code == 2
    assert "did you mean `lm_head.weight`?" in result.stderr


def test_diff_of_a_spec_with_itself_is_empty(here: Path) -> None:
    """A spec differs from itself in nothing."""
    assert meshlang("diff", "good.toml", "good.toml", "--ranks", "4").output == "no difference\n"


def test_diff_shows_what_moves(here: Path) -> None:
    """Two specs differ in tensors that change place, with the bytes of state that move."""
    (here / "other.toml").write_text(GOOD.replace("fsdp", "ddp"))
    result = meshlang("diff", "good.toml", "other.toml", "--ranks", "4")
    assert result.exit_code == 0
    assert "tensors that change place" in result.output


def test_diff_is_one_document(here: Path) -> None:
    """With `--json` a difference has a key for each part, empty where nothing differs."""
    (here / "other.toml").write_text((here / "good.toml").read_text() + '[recompute]\nmodules = ["layers.*"]\n')
    found = json.loads(meshlang("diff", "good.toml", "other.toml", "--ranks", "4", "--json").output)
    assert found["mesh"] == ["recomputed nothing -> layers.*"]
    assert [line.split()[0] for line in found["memory"]] == ["activations", "total"]
    assert found["tensors"] == found["state"] == []


def test_diff_folds_tensors_of_one_side(here: Path) -> None:
    """Tensors that only one of two models has are told once for all layers that are alike."""
    (here / "other.toml").write_text(GOOD.replace("llama/tiny", "llama/debug"))
    result = meshlang("diff", "good.toml", "other.toml", "--ranks", "4")
    assert "only in the second\n  layers.[4-5].attention.qkv_linear.wq.weight\n" in result.output


def test_mesh_shows_one_rank(here: Path) -> None:
    """`mesh --rank` prints one rank and its groups."""
    assert "4 5 6 7" in meshlang("mesh", "good.toml", "--ranks", "8", "--on", "big", "--rank", "5").output


def test_mesh_of_many_ranks_is_cut(here: Path) -> None:
    """A mesh of very many ranks is printed at once, and says what it leaves out."""
    result = meshlang("mesh", "good.toml", "--ranks", "1000000", "--set", "sizes.batch=500000")
    assert result.exit_code == 0
    assert "more" in result.output


def test_schema_is_json() -> None:
    """`schema` prints a JSON Schema."""
    assert "$schema" in data("schema")


def test_strategies_lists_plugins() -> None:
    """`strategies` prints those that are installed, with the distribution that brings them."""
    lines = meshlang("strategies").output.splitlines()
    assert lines[0] == "strategies"
    assert "schedules" in lines


def test_help_and_version_exit_with_0() -> None:
    """`--help` of every command and `--version` print to stdout."""
    assert meshlang("--version").exit_code == 0
    assert isinstance(main, click.Group)
    for name in main.list_commands(click.Context(main)):
        result = meshlang(name, "--help")
        assert (result.exit_code, result.stderr) == (0, "")


# As processes


@pytest.mark.parametrize(
    "words",
    [
        ["check", "good.toml", "--ranks", "4"],
        ["plan", "good.toml", "--ranks", "4"],
        ["plan", "good.toml", "--ranks", "4", "--json"],
        ["explain", "good.toml", "norm.weight", "--ranks", "4"],
        ["diff", "good.toml", "good.toml", "--ranks", "4"],
        ["mesh", "good.toml", "--ranks", "4"],
        ["schema"],
        ["strategies"],
    ],
    ids=lambda words: " ".join(words[:1] + words[-1:]),
)
def test_commands_load_no_torch(here: Path, words: list[str]) -> None:
    """No command but `card` and `launch` imports torch."""
    program = f"""
import sys
from meshlang.cli import main
try:
    main({words!r}, standalone_mode=False)
except SystemExit as stop:
    assert not stop.code, stop.code
assert not {{"torch", "torchtitan", "numpy"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_leaves_is_no_traceback(here: Path) -> None:
    """`meshlang plan | head -1` ends without a word on stderr."""
    command = f"{' '.join(map(repr, RUN))} plan good.toml --ranks 4 --json"
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -c 1 > /dev/null"], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


def test_findings_are_printed_on_any_terminal(here: Path) -> None:
    """A finding with letters that the terminal's encoding lacks is still printed."""
    (here / "umlaut.toml").write_text(GOOD + '\n[größe]\n"日本" = 1\n', encoding="utf-8")
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = subprocess.run([*RUN, "check", "umlaut.toml"], env=env, capture_output=True, check=False)
    assert done.returncode == 1
    assert b"error[" in done.stdout
    assert b"Traceback" not in done.stderr


def test_a_file_that_may_not_be_read_is_usage(here: Path) -> None:
    """A file without permission to read is wrong usage with the system's reason."""
    path = here / "secret.toml"
    path.write_text(GOOD)
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    result = meshlang("check", "secret.toml")
    assert result.exit_code == 2
    assert "cannot read" in result.stderr
