"""Values and places of a TOML text."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import tomli
from documents import spell, tree
from hypothesis import given, settings
from hypothesis import strategies as st

from meshlang.diagnostics import Bag, Diagnostic
from meshlang.language.toml import Node, plain, scan
from meshlang.source import Source


def scanned(text: str) -> Node:
    """The tree of a text without findings."""
    bag = Bag()
    node = scan(Source("t.toml", text), bag)
    assert node is not None, [(each.message, str(each.label.span)) for each in bag]
    return node


def finding(text: str) -> Diagnostic:
    """The one finding of a text."""
    bag = Bag()
    assert scan(Source("t.toml", text), bag) is None
    (found,) = bag
    return found


def nodes(node: Node, name: str | None = None) -> Iterator[tuple[str | None, Node]]:
    """Every node of a tree below its root, with the name of its key."""
    for key, inner in node.value.items() if isinstance(node.value, dict) else enumerate(node.value):
        below = key if isinstance(key, str) else name
        yield below, inner
        if isinstance(inner.value, (dict, tuple)):
            yield from nodes(inner, below)


def is_header(node: Node) -> bool:
    """True for a table, or an array of tables, with headers."""
    if isinstance(node.value, dict):
        return node.span.text.startswith("[")
    rows = isinstance(node.value, tuple) and bool(node.value) and isinstance(node.value[0].value, dict)
    return rows and is_header(node.value[0])


def names(values: dict[str, Any]) -> list[str]:
    """The names in a text that is one header, outermost first."""
    ((name, inner),) = values.items()
    inner = inner[0] if isinstance(inner, list) else inner
    return [name, *(names(inner) if inner else [])]


@given(st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_scanner_agrees_with_tomli(seed: int) -> None:
    """Keys and values are tomli's, and each place holds the text of its key or value."""
    rng = Random(seed)
    values = tree(rng)
    text = spell(rng, values)
    read = tomli.loads(text)
    root = scanned(text)
    assert plain(root) == read == values
    for name, node in nodes(root):
        if node.key is not None:
            assert tomli.loads(f"{node.key.text} = 1") == {name: 1}
        if is_header(node):
            path = names(tomli.loads(node.span.text))
            assert path[-1] == name if node.explicit else name in path[:-1]
        elif isinstance(node.value, dict) and not node.span.text.startswith("{"):
            assert node.span == node.key
        else:
            assert tomli.loads(f"x = {node.span.text}")["x"] == plain(node)


@given(st.text())
@settings(max_examples=300, deadline=None)
def test_any_text_scans_or_is_a_finding(text: str) -> None:
    """A text gives a tree or one finding, never an exception."""
    bag = Bag()
    assert (scan(Source("t.toml", text), bag) is None) == (len(bag) == 1)


@given(st.lists(st.sampled_from(list("[]{}=.,#\"'\\ \n\ra1")), max_size=40).map("".join))
@settings(max_examples=500, deadline=None)
def test_any_punctuation_scans_or_is_a_finding(text: str) -> None:
    """A text of TOML's own marks gives a tree equal to tomli's, or one finding inside the text."""
    bag = Bag()
    root = scan(Source("t.toml", text), bag)
    if root is not None:
        assert plain(root) == tomli.loads(text)
    for found in bag:
        assert 0 <= found.label.span.start <= found.label.span.end <= len(text)


def test_version_1_1_of_toml_is_read() -> None:
    """Newlines and trailing commas in inline tables, and the escapes of TOML 1.1, are read."""
    root = scanned('a = {\n b = "\\e\\x41", # c\n}\n')
    assert plain(root) == {"a": {"b": "\x1bA"}}
    assert root.value["a"].value["b"].span.text == '"\\e\\x41"'


def test_header_places_are_parts_of_the_header() -> None:
    """A table's key is its part of the header, and the header is its value's place."""
    table = scanned('[at."layers.0"]\nheads = "tp"\n').value["at"]
    assert (table.key.text, table.span.text, table.explicit) == ("at", '[at."layers.0"]', False)
    inner = table.value["layers.0"]
    assert (inner.key.text, inner.span.text, inner.explicit) == ('"layers.0"', '[at."layers.0"]', True)


def test_later_header_takes_the_place() -> None:
    """A table first made by a longer header stands at its own header."""
    assert scanned("[a.b]\n[a]\nc = 1\n").value["a"].span.line == 2


def test_rows_have_places_of_their_own() -> None:
    """Each element of an array of tables stands at its own header."""
    rows = scanned("[[check]]\na = 1\n[[check]]\na = 2\n").value["check"]
    assert [row.span.line for row in rows.value] == [1, 3]


@pytest.mark.parametrize(
    ("text", "word", "line", "column"),
    [
        ("[mesh]\ntp = rest\n", "`rest` is no TOML value", 2, 6),
        ("a = ", "a value is missing", 1, 5),
        ('a = "x\nb = 1', "not closed on its line", 1, 7),
        ("a = [1 2]", "`,` or `]` is missing", 1, 8),
        ("a = True", "lower case", 1, 5),
        ("a 1", "`=` is missing", 1, 3),
        ("x = 1\r\n\0", "begins with a key", 2, 1),
        ("a = 1\rb = 2", "more text", 1, 6),
        ("a = 2023-02-30", "no calendar", 1, 5),
        ("a = " + "[" * 5000, "nested deeper than 100", 1, 105),
        (".".join(["a"] * 5000) + " = 1", "nested deeper than 100", 1, 1),
        ("a = " + "9" * 5000, "64 bits", 1, 5),
        ("a = 0x" + "f" * 30, "64 bits", 1, 5),
    ],
)
def test_syntax_is_one_finding(text: str, word: str, line: int, column: int) -> None:
    """What is no TOML is one `syntax` finding at its place, in words of the house."""
    found = finding(text)
    assert (found.code, found.label.span.line, found.label.span.column) == ("syntax", line, column)
    assert word in found.message
    assert "nvalid" not in found.message


@pytest.mark.parametrize(
    "text",
    [
        "a = 1\na = 2",
        "[a]\n[a]",
        "a.b = 1\n[a]",
        "a = 1\n[a.b]",
        "a = {}\na.b = 1",
        "[a]\n[[a]]",
        "[a.b]\n[a]\nb.c = 1",
    ],
)
def test_twice_shows_both_places(text: str) -> None:
    """A key set twice is a finding that shows both places."""
    found = finding(text)
    assert found.label.span.line > found.labels[0].span.line
    assert "two" in found.message or "twice" in found.message


def test_bare_word_is_offered_in_quotes() -> None:
    """A word without quotes gets an edit that puts it in quotes."""
    (offer,) = finding("tp = rest").help
    assert offer.edits[0].text == '"rest"'


def test_byte_order_mark_is_a_finding() -> None:
    """A byte order mark is named, and leaving it out is offered."""
    found = finding("\ufeffa = 1\n")
    assert (found.code, str(found.label.span)) == ("syntax", "t.toml:1:1")
    assert [edit.text for edit in found.help[0].edits] == [""]


def test_bytes_that_are_no_utf8_are_a_finding() -> None:
    """The first byte that is no UTF-8 is a `not-utf8` finding at its character."""
    bag = Bag()
    assert scan(Source.decode("t.toml", 'a = "\u03c0"\nb = "'.encode() + b'\xff\xfe"'), bag) is None
    (found,) = bag
    assert (found.code, str(found.label.span)) == ("not-utf8", "t.toml:2:6")


def test_replacement_character_itself_is_text() -> None:
    """U+FFFD written as UTF-8 is a character like any other."""
    source = Source.decode("t.toml", 'a = "\ufffd"'.encode())
    assert plain(scan(source, Bag())) == {"a": "\ufffd"}  # pyright: ignore[reportArgumentType]
