"""What the command line says to who does not know it yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from meshlang.cli import COMMANDS, main

SPEC = str(Path(__file__).parents[1] / "examples" / "llama_tiny_cpu.toml")


def explain(name: str) -> Result:
    """`meshlang explain` of a name in a small spec."""
    return CliRunner().invoke(main, ["explain", SPEC, name])


def test_list_of_commands_ends_no_line_early() -> None:
    """At 80 columns the list of commands has the whole line of each."""
    done = CliRunner().invoke(main, ["--help"], terminal_width=80)
    commands = done.output.partition("Commands:\n")[2].splitlines()
    assert len(commands) == len(COMMANDS)
    assert not [line for line in commands if line.endswith("...")]


def test_explain_of_a_pattern_tells_the_first() -> None:
    """A name with stars, as plans print it, is explained by the first tensor that it stands for."""
    starred = explain("layers.*.attention.wo.weight").output
    assert starred == explain("layers.0.attention.wo.weight").output
    assert starred.startswith("layers.0.attention.wo.weight: parameter")


def test_explain_of_the_end_of_a_name_offers_the_whole() -> None:
    """`wo.weight` alone is no name, and the first that ends so is offered."""
    done = explain("wo.weight")
    assert done.exit_code == 2
    assert "did you mean `layers.0.attention.wo.weight`?" in done.output


@pytest.mark.parametrize("name", ["layers.*.nothing", "{", "[9-0]", ""])
def test_explain_of_what_stands_for_nothing_is_usage(name: str) -> None:
    """A pattern that matches nothing, and a text that is no pattern, are said not to be there."""
    done = explain(name)
    assert done.exit_code == 2 or done.output.startswith("the model")
    assert "Traceback" not in done.output


def test_module_beside_the_command_is_found_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's module that lies in this folder, where commands do not search, is told with the way to it."""
    (tmp_path / "beside_net.py").write_text("def net(): ...\n")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["card", "init", "beside_net:net"])
    assert done.exit_code == 2
    assert "there is no module `beside_net`; it lies in this folder: set PYTHONPATH=." in done.output
