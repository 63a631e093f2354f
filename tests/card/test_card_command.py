"""`meshlang card` on the command line: which card, which flavor, which model; and what a plan says of its sizes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from real_models import ROOT

from meshlang.cli import main
from meshlang.compiler import Request, compile
from meshlang.report.plan import plan_text
from meshlang.source import Source

MIXER = str(ROOT / "examples/cards/mixer.card.toml")


def card(*words: str) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(main, ["card", *words], prog_name="meshlang", catch_exceptions=False)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("llama", "llama: which flavor of the card? llama/tiny, llama/debug, llama/deep"),
        ("llama/", "llama/: which flavor of the card? llama/tiny, llama/debug, llama/deep"),
        (MIXER, f"{MIXER}: which flavor of the card? {MIXER}#small, {MIXER}#large"),
        (f"{MIXER}#", f"{MIXER}#: which flavor of the card? {MIXER}#small, {MIXER}#large"),
    ],
    ids=["installed", "slash", "file", "hash"],
)
def test_check_without_a_flavor_names_them(name: str, wanted: str) -> None:
    """A card without a flavor is wrong usage, answered with the names that would do."""
    result = card("check", name, "torch.nn:Identity")
    assert result.exit_code == 2
    assert f"Error: {wanted}\n" in result.stderr


def test_check_of_no_card_names_the_installed() -> None:
    """A card that is not installed, nor a file, is wrong usage with those that are."""
    result = card("check", "lama", "torch.nn:Identity")
    assert result.exit_code == 2
    assert re.search(r"lama: no such card; NAME/FLAVOR of .*llama, llama3, qwen3, or FILE#FLAVOR", result.stderr)


def test_init_of_an_empty_tensor_is_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with a dimension of 0 is told which tensor that is."""
    module = "from torch import nn\n\n\nclass Empty(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    module += "        self.head = nn.Parameter(__import__('torch').empty(0, 4))\n"
    (tmp_path / "empty_models.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    result = card("init", "empty_models:Empty")
    assert result.exit_code == 2
    assert "nothing is in `head` (0, 4): build the model without" in result.stderr


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [("own_card", "? : not known without `batch` in [sizes]"), ("llama_tiny_cpu", "without `batch` and `seq` in")],
)
def test_plan_asks_for_sizes_of_the_model_only(spec: str, wanted: str) -> None:
    """A model without a sequence is not asked for its length, and nothing is asked once all is known."""
    path = ROOT / f"examples/{spec}.toml"
    assert "not known" not in plan_text(compile(Request.of(path)))
    text = re.sub(r"\[sizes\]\n(\w+ = \d+\n)+", "", path.read_text())
    assert wanted in plan_text(compile(Request(source=Source(str(path), text))))
