"""What `meshlang suggest` proposes: specs that the compiler takes, that fit, the fastest first, always the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from meshlang.cli import main
from meshlang.compiler import Request, check, compile
from meshlang.format import formatted
from meshlang.plan.cost import memory
from meshlang.source import Source

TINY = ("llama/tiny", "--ranks", "4", "--memory", "2GiB", "--seq", "256", "--batch", "32")
BLOCKS = ("block_diffusion/tiny", "--ranks", "4", "--memory", "1GiB", "--seq", "8192", "--batch", "4")


def suggest(*words: str) -> Result:
    """What the command prints."""
    return CliRunner().invoke(main, ["suggest", *words], catch_exceptions=False)


@pytest.fixture(scope="module", params=[TINY, BLOCKS], ids=["tiny", "blocks"])
def proposed(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Proposals as data."""
    done = suggest(*request.param, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def test_every_proposal_is_checked(proposed: dict[str, Any]) -> None:
    """`check` has nothing against any, nor has what torchtitan can run."""
    assert len(proposed["proposals"]) >= 2
    for each in proposed["proposals"]:
        assert check(Request(source=Source(name="p.toml", text=each["spec"]), launch=True)) == ()


def test_every_proposal_fits(proposed: dict[str, Any]) -> None:
    """The plan of the spec holds what was predicted, on as many ranks as asked for, and that is less than there is."""
    for each in proposed["proposals"]:
        plan = compile(Request(source=Source(name="p.toml", text=each["spec"])))
        assert plan.ranks == proposed["ranks"] == 4
        assert memory(plan).total == each["memory"]["total"] <= 0.9 * proposed["memory"]


def test_the_fastest_is_first(proposed: dict[str, Any]) -> None:
    """Seconds go up, are the sum of their parts, and no two stand on one mesh."""
    seconds = [each["seconds"] for each in proposed["proposals"]]
    assert seconds == sorted(seconds)
    for each in proposed["proposals"]:
        assert sum(each["parts"].values()) == pytest.approx(each["seconds"])
    meshes = [json.dumps(each["mesh"]) for each in proposed["proposals"]]
    assert len(set(meshes)) == len(meshes)


def test_specs_are_as_fmt_writes_them(proposed: dict[str, Any]) -> None:
    """`fmt` changes nothing in a proposal."""
    for each in proposed["proposals"]:
        assert formatted(each["spec"]) == each["spec"]


def test_the_same_is_proposed_twice() -> None:
    """Two runs print the same letters."""
    assert suggest(*TINY, "-n", "2").output == suggest(*TINY, "-n", "2").output


def test_blocks_are_dealt() -> None:
    """A model of two streams gets csbp over its axis, with the block size that was asked for."""
    done = suggest(*BLOCKS, "--block-size", "64", "-n", "1")
    assert "[strategy.csbp]\n" in done.output
    assert "block_size = 64\n" in done.output


def test_specs_are_written_to_a_folder(tmp_path: Path) -> None:
    """Each is a file that checks; a file that says something else is not written over."""
    done = suggest(*TINY, "-n", "2", "-o", str(tmp_path))
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["suggested_1.toml", "suggested_2.toml"]
    assert "meshlang = 1" not in done.output
    assert [check(Request.of(file)) for file in files] == [(), ()]
    files[0].write_text("meshlang = 1\n")
    again = suggest(*TINY, "-n", "2", "-o", str(tmp_path))
    assert again.exit_code == 2
    assert files[0].read_text() == "meshlang = 1\n"


def test_a_card_file_lies_below_the_specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A card of one's own is named from the folder of the specs; one outside that folder no spec could read."""
    card = Path(__file__).parents[2] / "models/llama/card.toml"
    (tmp_path / "cards").mkdir()
    (tmp_path / "cards/own.toml").write_text(card.read_text())
    monkeypatch.chdir(tmp_path)
    done = suggest("cards/own.toml#tiny", *TINY[1:], "-n", "1", "-o", ".")
    assert done.exit_code == 0, done.output
    assert 'model = "cards/own.toml#tiny"' in (tmp_path / "suggested_1.toml").read_text()
    assert check(Request.of("suggested_1.toml", inside=".")) == ()
    assert suggest("cards/own.toml#tiny", *TINY[1:], "-o", "specs").exit_code == 2


@pytest.mark.parametrize(
    ("words", "codes"),
    [
        (("--ranks", "four", "--memory", "2GiB"), ["wrong-type"]),
        (("--ranks", "0", "--memory", "80 Gigs"), ["bad-value", "bad-value"]),
        (("--ranks", "4", "--memory", "2GiB", "--seq", "-1"), ["wrong-type"]),
        (("--ranks", "12", "--memory", "2GiB"), ["leaves-node"]),
        (("--ranks", "4", "--memory", "1MiB", "--seq", "256", "--batch", "4"), ["nothing-fits"]),
        (("--ranks", "16", "--memory", "2GiB", "--seq", "255", "--batch", "7"), ["nothing-fits"]),
    ],
)
def test_what_cannot_be_is_a_finding(words: tuple[str, ...], codes: list[str]) -> None:
    """Texts that are no numbers, and numbers that nothing fits, are findings, and nothing is proposed."""
    done = suggest("llama/tiny", *words, "--format", "json")
    assert done.exit_code == 1
    assert [each["code"] for each in json.loads(done.output)] == codes


@pytest.mark.parametrize(
    ("model", "words", "code", "told"),
    [
        (
            "block_diffusion/tiny",
            ("--seq", "250"),
            "block-size",
            "`seq` = 250 does not divide into blocks of 32 tokens",
        ),
        ("block_diffusion/tiny", ("--seq", "256", "--block-size", "3"), "block-size", "into blocks of 3 tokens"),
        ("llama/tiny", ("--block-size", "3"), "decides-nothing", "`llama/tiny` has no blocks"),
    ],
)
def test_a_sequence_is_whole_blocks(model: str, words: tuple[str, ...], code: str, told: str) -> None:
    """Blocks that do not fill a sequence, and a size of blocks that nothing has, are told as such."""
    done = suggest(model, "--ranks", "6", "--memory", "1GiB", "--batch", "6", *words, "--format", "json")
    (found,) = json.loads(done.output)
    assert (done.exit_code, found["code"]) == (1, code)
    assert told in found["message"]


def test_a_flavor_far_from_all_has_no_help() -> None:
    """No near flavor, no help: the note lists those that the card has."""
    done = suggest("llama/x", *TINY[1:])
    assert done.exit_code == 1
    assert "it has tiny, debug" in done.output
    assert "did you mean" not in done.output


def test_an_unknown_model_is_a_finding() -> None:
    """The near name is offered, as for a spec."""
    done = suggest("llama/tinny", *TINY[1:], "--format", "short")
    assert (done.exit_code, "unknown-flavor" in done.output) == (1, True)
