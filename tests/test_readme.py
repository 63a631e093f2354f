"""README.md is run: its spec, its commands, its Python."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "llama_tiny_cpu.toml"


def blocks(language: str) -> list[str]:
    """The text of each fenced block of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def run(command: str, timeout: int = 120) -> subprocess.CompletedProcess[str]:
    """A `meshlang ...` command as the README writes it, by this interpreter, from the repository's root."""
    words = command.split()
    assert words[0] == "meshlang"
    line = [sys.executable, "-c", "from meshlang.cli import main; main(prog_name='meshlang')", *words[1:]]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)


def bare(text: str) -> list[str]:
    """Lines without comments and empty ones."""
    lines = (line.partition("#")[0].rstrip() for line in text.splitlines())
    return [line for line in lines if line]


def test_spec_is_the_example() -> None:
    """The README's spec is examples/llama_tiny_cpu.toml, comments aside."""
    (spec,) = blocks("toml")
    assert bare(spec) == bare(EXAMPLE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("block", blocks("console"))
def test_console_blocks_print_what_they_show(block: str) -> None:
    """Each `$` command prints the lines under it, and may go on after the last."""
    command, *shown = block.splitlines()
    printed = run(command.removeprefix("$ ")).stdout.splitlines()
    assert [line.rstrip() for line in printed[: len(shown)]] == shown


#: Before and behind the README's placing of a plain module: a model without weights, and one rank of 64.
PLACED = (
    "import sys\nsys.path.insert(0, 'tests')\n",
    """
import torch
from meshlang.testing.fake import fake_group
from transformers_models import qwen3

with torch.device("meta"):
    model = qwen3("8B")
with fake_group(64, rank=3):
    part = placed(model, "cpu").get_parameter("model.layers.35.mlp.up_proj.weight")
assert part.to_local().shape == (12288 // 8 // 8, 4096), part.to_local().shape
""",
)


def test_python_blocks_run(tmp_path: Path) -> None:
    """The README's Python runs: the recipe gives a planned config, a plain module is placed, and its test passes.

    All in one process, which loads torch once.
    """
    recipe, placed, example = blocks("python")
    (tmp_path / "recipe.py").write_text(recipe + "\n\nassert planned().parallelism.tensor_parallel_degree == 2\n")
    (tmp_path / "example.py").write_text(example + "\n\ntest_output_projection_is_row_parallel()\n")
    (tmp_path / "placed.py").write_text(f"{PLACED[0]}\n{placed}\n\n{PLACED[1]}")
    paths = [str(tmp_path / name) for name in ("recipe.py", "placed.py", "example.py")]
    each = "import runpy, sys; [runpy.run_path(path, run_name='__main__') for path in sys.argv[1:]]"
    done = subprocess.run(
        [sys.executable, "-c", each, *paths], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def test_two_commands_install_what_is_here() -> None:
    """The two commands name the example, the extras of pyproject.toml and a target of the Makefile."""
    first, second = blocks("sh")
    assert "pip install -e . " in first
    assert f"meshlang launch {EXAMPLE.relative_to(ROOT)}" in first
    assert "pip install -e '.[dev]'" in second
    assert "make check PYTHON=" in second
    assert re.search(r"^check:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.gloo
def test_first_command_trains(tmp_path: Path) -> None:
    """`meshlang launch` of the README's spec trains on 4 ranks: the loss falls as it says, by more than a third."""
    (shown,) = [block for block in blocks("text") if "loss:" in block]
    environment = {**os.environ, "NO_COLOR": "1"}
    command = [sys.executable, "-m", "meshlang", "launch", str(EXAMPLE), "--", "--dump_folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert done.stdout.splitlines()[0] == shown.splitlines()[0]
    printed, said = losses(done.stdout), losses(shown)
    assert printed[60] < printed[1] * 2 / 3
    for step, loss in said.items():
        assert printed[step] == pytest.approx(loss, abs=0.15)


def losses(text: str) -> dict[int, float]:
    """Step -> loss of a log."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    return {int(step): float(loss) for step, loss in re.findall(r"step:\s*(\d+)\s+loss:\s*([\d.]+)", plain)}
