"""`meshlang fmt`: one order, one spacing, the same comments and the same meaning."""

from __future__ import annotations

import io
import random
import re
from pathlib import Path

import pytest
import tomlkit
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from tomlkit.items import Comment, Item

from meshlang.cli import main
from meshlang.diagnostics import Bag
from meshlang.format import formatted, meaning
from meshlang.language.files import PRESETS
from meshlang.language.toml import scan
from meshlang.source import Source

UNTIDY = """\
# A small model on two machines.
# Written in a hurry.

[place]   # names to axes
# tp cuts these
vocab="tp"
heads =   [ "tp" ,]


kv_heads = 'tp'


# kept at rest
# over dp
[store]
after_forward = "free"
over = [
  "dp",  # one axis
]

# not about the mesh

[mesh]
tp=2
dp= "rest"

[topology]
on.large.mesh = {dp=4,  tp = 8}
order=["dp","tp"]
[[check]]
expect = { tp = "S(1)"}
name = "a"

tensor = "b"
[at."x"]
why = "no reason"
mlp = "whole"
# the end
"""

TIDY = """\
# A small model on two machines.
# Written in a hurry.

[mesh]
tp = 2
dp = "rest"

[topology]
order = ["dp", "tp"]
on.large.mesh = { dp = 4, tp = 8 }

[place]  # names to axes
# tp cuts these
vocab = "tp"
heads = ["tp"]

kv_heads = 'tp'

# kept at rest
# over dp
[store]
over = [
  "dp",  # one axis
]
after_forward = "free"

# not about the mesh

[at."x"]
mlp = "whole"
why = "no reason"
# the end

[[check]]
name = "a"

tensor = "b"
expect = { tp = "S(1)" }
"""


def test_untidy_text_becomes_tidy() -> None:
    """Tables and keys stand in the language's order, blanks are even, comments stay where they belong."""
    assert formatted(UNTIDY) == TIDY
    assert formatted(TIDY) == TIDY


@pytest.mark.parametrize("path", sorted(PRESETS.glob("*.toml")), ids=lambda path: path.stem)
def test_presets_are_formatted(path: Path) -> None:
    """meshlang's own presets are as `fmt` writes them."""
    assert formatted(path.read_text()) == path.read_text()


def hold(text: str, name: str) -> None:
    """Formatted, a text means the same, has the same comments, and does not change again."""
    after = formatted(text)
    assert meaning(Source(name, after)) == meaning(Source(name, text))
    assert sorted(comments(after)) == sorted(comments(text))
    assert formatted(after) == after


def comments(text: str) -> list[str]:
    """Every comment of a text, wherever it stands."""
    return list(_comments(tomlkit.parse(text.replace("\r\n", "\n"))))


def _comments(item: object) -> list[str]:
    found = [item.trivia.comment.rstrip()] if isinstance(item, Item) and _has_trivia(item) else list[str]()
    inner = getattr(item, "value", item)
    body = getattr(item, "body", None) or getattr(inner, "body", None) or ()
    for each in body:
        found += _comments(each[1] if isinstance(each, tuple) else each)
    return [each for each in found if each]


def _has_trivia(item: Item) -> bool:
    return isinstance(item, Comment) or type(item).__name__ not in ("Whitespace", "Null", "AoT")


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_any_toml_keeps_its_meaning(seed: int) -> None:
    """Random tables under the language's names, in any of TOML's spellings, read as before."""
    draw = random.Random(seed)
    pieces = [piece(draw) for _ in range(draw.randint(1, 6))]
    text = "".join(pieces)
    if scan(Source("t.toml", text), Bag()) is not None:
        hold(text, "t.toml")


PIECES = (
    *("# word\n", "\n", "\n\n", "  # indented  \n", "[mesh]\n", "[ place ] # p\n", "[[check]]\n", "[check.expect]\n"),
    *('[at."a.b"]\n', "[topology.on.x.mesh]\n", "[x.y.z]\n", "[x]\n", '[within."a".b]\n', "[strategy.ring]\r\n"),
    *(
        "a = 1\n",
        "b.c = 'x' # y\n",
        'b . "d" = {}\n',
        "why = ''\n",
        "heads = [ 1,[2 , 'a]' ] , ]\n",
        "dp=1979-05-27 07:32:00\n",
    ),
    *(
        'e = { a.b = 1 , c= "}=," }\n',
        "f = [\n # in\n 1 ,\n\n]\n",
        'g = """\n # no comment \n\n"""\n',
        "name = '''x\r\ny'''\n",
    ),
    *(
        "h = {\n  a = 1, # in\n}\n",
        "over = []\n",
        "model='m'\n",
        "meshlang=1\n",
        "i = -0x1\n",
        "j = nan\n",
        "k = true#x\n",
    ),
)


def piece(draw: random.Random) -> str:
    """One to three lines of a text."""
    return "".join(draw.choice(PIECES) for _ in range(draw.randint(1, 3)))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an untidy and a tidy file, which is the working directory."""
    (tmp_path / "untidy.toml").write_text(UNTIDY)
    (tmp_path / "tidy.toml").write_text(TIDY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fmt(*words: str, text: str | None = None) -> Result:
    """`meshlang fmt`, in this process."""
    stdin = io.BytesIO(text.encode()) if text is not None else None
    return CliRunner().invoke(main, ["fmt", *words], prog_name="meshlang", input=stdin, catch_exceptions=False)


def test_fmt_writes_what_changes(here: Path) -> None:
    """A file that changes is written and named; one in order is left alone."""
    assert (fmt("untidy.toml", "tidy.toml").output, fmt("untidy.toml").output) == ("formatted untidy.toml\n", "")
    assert (here / "untidy.toml").read_text() == TIDY


def test_check_names_and_writes_nothing(here: Path) -> None:
    """`--check` names what would change and exits with 1; with 0 where nothing would."""
    result = fmt("--check", "untidy.toml", "tidy.toml")
    assert (result.exit_code, result.output) == (1, "would format untidy.toml\n")
    assert (here / "untidy.toml").read_text() == UNTIDY
    assert fmt("--check", "tidy.toml").exit_code == 0


def test_diff_shows_and_writes_nothing(here: Path) -> None:
    """`--diff` prints a unified diff that patches one text into the other, and exits with 1."""
    result = fmt("--diff", "untidy.toml")
    assert result.exit_code == 1
    assert re.search(r"^--- untidy.toml\n\+\+\+ formatted\n@@ ", result.output)
    assert '-vocab="tp"\n' in result.output
    assert '+vocab = "tp"\n' in result.output
    assert (here / "untidy.toml").read_text() == UNTIDY


def test_dash_is_stdin_to_stdout(here: Path) -> None:
    """`-` reads standard input and prints the text in order."""
    assert fmt("-", text=UNTIDY).output == TIDY


@pytest.mark.parametrize("data", [b"a = ", b"\xff", b"\x00", b"card = 1\n", b"a=" + b"[" * 5000])
def test_no_spec_is_left_alone(here: Path, data: bytes) -> None:
    """What is no TOML, or a card, has findings and stays as it is."""
    (here / "odd.toml").write_bytes(data)
    result = fmt("odd.toml")
    assert result.exit_code == 1
    assert result.output.startswith("error[")
    assert (here / "odd.toml").read_bytes() == data


def test_a_missing_file_is_usage(here: Path) -> None:
    """A file that cannot be read is wrong usage."""
    assert fmt("missing.toml").exit_code == 2
