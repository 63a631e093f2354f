"""A launch says what is wrong with a recipe or a flag before any rank starts."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from meshlang.cli import main

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "llama_tiny_cpu.toml")


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("meshlang_models.llama:tinny", "`meshlang_models.llama` has no function `tinny`"),
        ("meshlang_models.lama:tiny", "there is no module `meshlang_models.lama`"),
        ("os:getcwd", "the recipe `os:getcwd` gives str, and torchtitan's Trainer.Config is expected"),
    ],
)
def test_recipe_is_called_before_ranks_start(recipe: str, message: str) -> None:
    """A recipe that is not there, or gives no config, ends the launch with one line and exit code 2."""
    done = CliRunner().invoke(main, ["launch", EXAMPLE, "--set", f"launch.recipe={recipe}"])
    assert done.exit_code == 2
    assert done.stderr == f"meshlang: {message}\n"


def test_flag_of_the_spec_is_read_before_ranks_start() -> None:
    """A flag of [launch] set that torchtitan does not know ends the launch with torchtitan's message."""
    done = CliRunner().invoke(main, ["launch", EXAMPLE, "--set", 'launch.set={"training.stepz"=1}'])
    assert done.exit_code == 2
    assert "ranks," not in done.stdout


def test_help_of_flags_names_the_command() -> None:
    """torchtitan's own help begins with the command that takes its flags."""
    done = CliRunner().invoke(main, ["launch", EXAMPLE, "--", "--help"])
    assert done.exit_code == 0
    assert done.stdout.startswith("usage: meshlang launch SPEC -- [-h] ")


def test_data_is_looked_for_before_ranks_start(tmp_path: Path) -> None:
    """A folder of text that is not there ends the launch with one line that names it."""
    missing = str(tmp_path / "texts")
    done = CliRunner().invoke(main, ["launch", EXAMPLE, "--", "--dataloader.path", missing])
    assert done.exit_code == 2
    assert done.stderr == (
        f"meshlang: the data of `meshlang_models.llama:tiny`: ValueError: there is no file or folder {missing}\n"
    )


CHECKED = """from dataclasses import replace
from meshlang_models.block_diffusion import tiny

def checked():
    config = tiny()
    return replace(config, debug=replace(config.debug, spmd_typechecking=True))
"""


def test_check_of_types_of_a_recipe_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe that asks for torchtitan's check of types itself is refused for cut streams until a flag says no."""
    (tmp_path / "checked_recipe.py").write_text(CHECKED)
    monkeypatch.syspath_prepend(str(tmp_path))
    blocks = str(Path(EXAMPLE).with_name("block_diffusion_cpu.toml"))
    words = ["launch", blocks, "--set", "launch.recipe=checked_recipe:checked", "--on-interrupt", "checkpoint"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1
    assert "error[types-unchecked]: torchtitan's check of types is asked for" in done.stdout
    assert " --> --set:1:15" in done.stdout
    assert "note: `--debug.no-spmd_typechecking` turns the recipe's off" in done.stdout
    off = CliRunner().invoke(main, [*words, "--", "--debug.no-spmd_typechecking"])
    assert off.exit_code == 2
    assert off.stderr.startswith("meshlang: --on-interrupt checkpoint: this run saves none")
