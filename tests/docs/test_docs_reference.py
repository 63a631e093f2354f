"""The reference of docs/ is made of the code: nothing of it is left out."""

from __future__ import annotations

import sys

import click
import pytest
from walks import DOCS

from meshlang.cli import COMMANDS, codes, main
from meshlang.language import plugins
from meshlang.language.shape import Rows, Schedule, Table
from meshlang.language.tables import ROOT as SPEC
from meshlang.registry import Plugins, Registry

sys.path.insert(0, str(DOCS))
import making


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Path -> text of each page that is made."""
    return making.reference()


def _below(text: str, title: str) -> str:
    """The section under a heading."""
    assert f"\n## {title}\n" in text, title
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize("name", SPEC.keys)
def test_every_table_and_key_is_there(name: str, pages: dict[str, str]) -> None:
    """Each key of the language stands in its table's section, with what it says."""
    shape = SPEC.keys[name].shape
    inner = shape.shared if isinstance(shape, Schedule) else shape.table if isinstance(shape, Rows) else shape
    if not isinstance(inner, Table):
        assert f"`{name}`" in pages["spec.md"] or f"## [{name}]" in pages["spec.md"]
        return
    section = _below(pages["spec.md"], f"[[{name}]]" if isinstance(shape, Rows) else f"[{name}]")
    assert all(f"| `{key}` |" in section for key in inner.keys)


@pytest.mark.parametrize(
    ("page", "registry"), [("strategies.md", Plugins().strategies), ("schedules.md", Plugins().schedules)]
)
def test_every_plugin_and_its_keys_are_there(page: str, registry: Registry, pages: dict[str, str]) -> None:
    """Each installed strategy and schedule has a section with all keys of its own."""
    for name in registry.names():
        section = _below(pages[page], name)
        assert all(f"| `{key}` |" in section for key in plugins.load(registry, name).table.keys)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_there(name: str, pages: dict[str, str]) -> None:
    """Each command has a section with every option of it."""
    section = _below(pages["commands.md"], f"meshlang {name}")
    command = main.get_command(click.Context(main), name)
    assert command is not None
    options = [flag for param in command.params if isinstance(param, click.Option) for flag in param.opts]
    assert all(flag in section for flag in options)


def test_every_code_has_its_page(pages: dict[str, str]) -> None:
    """Pages of findings are those of `meshlang explain`."""
    made = {path.removeprefix("codes/").removesuffix(".md") for path in pages if path.startswith("codes/")}
    assert made == set(codes())
    assert all(f"(codes/{code}.md)" in pages["codes.md"] for code in made)


def test_every_preset_card_and_example_is_there(pages: dict[str, str]) -> None:
    """What can be included, named as a model, or read as an example has its section."""
    assert "## tensor_parallel" in pages["presets.md"]
    assert "`llama3/405B`" in pages["cards.md"]
    for path in (DOCS.parent / "examples").glob("*.toml"):
        assert f"## {path.name}\n" in pages["examples.md"]


def test_python_names_have_signatures(pages: dict[str, str]) -> None:
    """Public names are shown with their arguments, defaults and attributes."""
    assert "fake_mesh(" in pages["python.md"]
    assert "rank: int = 0" in pages["python.md"]
    assert "| `sets` |" in pages["python.md"]
