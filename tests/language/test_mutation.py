"""A good spec, damaged at random: findings, never an exception, and no mistake passes silently."""

from __future__ import annotations

import string
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import FULL, attempt, codes

from meshlang.diagnostics import Bag, Diagnostic
from meshlang.language.toml import Node, scan
from meshlang.render import render
from meshlang.source import Source

#: Names that a spec is free to choose: whether they exist is for later stages to say.
FREE = ("mesh", "place", "within", "uneven", "at", "topology.on", "check.expect", "launch.set")

#: Values of every type that TOML has.
OTHERS = ("true", "1979-05-27", "{}", "[]", "[[1]]", "-1.5", '""', "[1, true]")


def leaves(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """Dotted name and node of every key that is not a table, and of every table."""
    inner = node.value.items() if isinstance(node.value, dict) else [("", each) for each in node.value]
    for name, each in inner:
        here = f"{path}.{name}".strip(".")
        yield here, each
        rows = isinstance(each.value, tuple) and bool(each.value) and isinstance(each.value[0].value, dict)
        if isinstance(each.value, dict) or rows:
            yield from leaves(each, here)


def full() -> list[tuple[str, Node]]:
    """Every key of the whole spec."""
    root = scan(Source("spec.toml", FULL), Bag())
    assert root is not None
    return list(leaves(root))


def is_free(path: str) -> bool:
    """True for a name that is the user's own."""
    return any(path.startswith(f"{free}.") for free in FREE) and not path.endswith(".why")


def report(found: list[Diagnostic]) -> None:
    """Every finding has its places in the text, and renders in each form."""
    for each in found:
        for label in (each.label, *each.labels):
            assert 0 <= label.span.start <= label.span.end <= len(label.span.source.text)
    for form in ("text", "short", "json"):
        render(found, form).encode()


def misspelled(word: str) -> Iterator[str]:
    """A word with one letter less, more, other, or two neighbours swapped."""
    for i in range(len(word)):
        yield word[:i] + word[i + 1 :]
        yield word[:i] + "x" + word[i:]
        yield word[:i] + "x" + word[i + 1 :]
        yield word[:i] + word[i : i + 2][::-1] + word[i + 2 :]


KEYS = sorted({path for path, node in full() if node.key and not is_free(path) and path.split(".")[-1]})


@pytest.mark.parametrize("path", KEYS)
def test_no_misspelled_key_passes(path: str) -> None:
    """One letter wrong in any key of the language is a finding, and most have the right key as a help."""
    node = dict(full())[path]
    assert node.key is not None
    text = node.key.text
    for word in {*misspelled(text)} - {text, ""}:
        found = attempt(FULL[: node.key.start] + word + FULL[node.key.end :])[1]
        assert found, word
        offered = [edit.text for each in found for offer in each.help for edit in offer.edits]
        assert text in offered or len(text) < 3 or path.startswith(("strategy.", "pipeline.")), (word, offered)


LEAVES = [(path, node) for path, node in full() if not path.startswith("launch.set") and node.span.text[:2] != "[["]


@pytest.mark.parametrize(("path", "node"), LEAVES, ids=[path for path, _ in LEAVES])
def test_no_wrong_type_passes(path: str, node: Node) -> None:
    """A value of another type is a finding, at every key."""
    if isinstance(node.value, dict):
        return
    for value in OTHERS:
        found = codes(FULL[: node.span.start] + value + FULL[node.span.end :])
        same = (value == "true" and isinstance(node.value, bool)) or (value == "[]" and path == "strategy.ring.groups")
        same = same or (value == "[]" and path == "store.except") or (value == "-1.5" and path == "strategy.ring.ratio")
        assert bool(found) != same, value


@given(st.integers(0, len(FULL)), st.sampled_from(["", '"', "[", "\n[", "= ", "\0", "\ufeff"]))
@settings(max_examples=150, deadline=None)
def test_truncated_spec_is_read_or_found(end: int, tail: str) -> None:
    """A spec cut off anywhere gives a Spec or findings."""
    text = FULL[:end] + tail
    report(attempt(text)[1])


@given(st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_random_edits_are_read_or_found(seed: int) -> None:
    """Letters deleted, put in, changed or moved anywhere give a Spec or findings."""
    rng, text = Random(seed), FULL
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(text))
        end = min(len(text), start + rng.choice((0, 1, 1, 2, 8, 60)))
        letters = rng.choice(("", "x", "0", '"', "[", "]", "{", "}", "=", "\n", ".", ",", rng.choice(string.printable)))
        moved = text[start:end] if rng.random() < 0.2 else ""
        text = text[:start] + letters + text[end:]
        at = rng.randrange(len(text) + 1)
        text = text[:at] + moved + text[at:]
    report(attempt(text)[1])


@given(st.binary(max_size=60), st.integers(0, len(FULL)))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_read_or_found(data: bytes, at: int) -> None:
    """Whatever bytes are in a spec, it gives a Spec or findings."""
    for whole in (data, FULL[:at].encode() + data + FULL[at:].encode()):
        report(attempt(Source.decode("spec.toml", whole))[1])


@given(st.text(max_size=40))
@settings(max_examples=50, deadline=None)
def test_random_names_are_read_or_found(name: str) -> None:
    """Any text as a key, a pattern, a name or a word gives a Spec or findings."""
    quoted = '"' + "".join(f"\\U{ord(char):08x}" for char in name) + '"'
    for old in ("batch =", '"layers.0.attention"', '"rest"', "ring", '"S(1)"', '"2 GiB"', '"llama3/debugmodel"'):
        text = FULL.replace(old, quoted + (" =" if old.endswith("=") else ""), 1)
        report(attempt(text)[1])
