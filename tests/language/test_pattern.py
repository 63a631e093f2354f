"""Globs over dotted names."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshlang.language.pattern import Pattern, PatternError

PARTS = st.sampled_from(["a", "b", "ab", "w1", "w2", "0", "10"])
NAMES = st.lists(PARTS, max_size=5).map(".".join)
GLOBS = st.lists(st.sampled_from(["a", "w*", "*", "**", "*1", "w[1-2]", "[0,10]"]), min_size=1, max_size=4)
RANGES = {"w[1-2]": ("w1", "w2"), "[0,10]": ("0", "10")}


def slow(glob: list[str], name: list[str]) -> bool:
    """The meaning of a glob without alternatives, part by part."""
    if not glob:
        return not name
    if glob[0] == "**":
        return any(slow(glob[1:], name[i:]) for i in range(len(name) + 1))
    if not name or not (name[0] in RANGES[glob[0]] if glob[0] in RANGES else fnmatchcase(name[0], glob[0])):
        return False
    return slow(glob[1:], name[1:])


@given(GLOBS, NAMES)
@settings(max_examples=500, deadline=None)
def test_match_is_part_by_part(glob: list[str], name: str) -> None:
    """A glob matches a name as its parts match in order, `**` any number of them."""
    parts = name.split(".") if name else []
    pattern = Pattern.parse(".".join(glob))
    assert pattern.matches(name) == slow(glob, parts)
    assert pattern.covers(name) == any(slow(glob, parts[:i]) for i in range(0 if not parts else 1, len(parts) + 1))


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("layers.*", "layers.0", "layers.0.attention"),
        ("layers.*", "layers.12", "layers"),
        ("**.wo", "wo", "wo.weight"),
        ("**.wo", "layers.0.attention.wo", "layers.0.two"),
        ("layers.**", "layers", "layers2"),
        ("**", "", "\n."),
        ("layers.*.{attention,feed_forward}", "layers.3.feed_forward", "layers.3.norm"),
        ("{lm_head,layers.*.{attention,mlp.w[1-2]}}", "layers.7.mlp.w2", "layers.7.mlp.w3"),
        ("{a.b,c}.d", "a.b.d", "a.d"),
        ("layers.[0,2,4-6]", "layers.5", "layers.3"),
        ("layers.[8-11]", "layers.10", "layers.1"),
        ("w*", "w", "xw"),
        ("x*[1-3]", "xy2", "xy12"),
        ("w1[0-3]", "w12", "w1"),
    ],
)
def test_glob_matches_some_names_only(glob: str, yes: str, no: str) -> None:
    """A glob matches what it spells and nothing beside it."""
    assert Pattern.parse(glob).matches(yes)
    assert not Pattern.parse(glob).matches(no)


def test_pattern_covers_what_is_below() -> None:
    """A pattern covers the modules it matches and everything below them."""
    pattern = Pattern.parse("layers.[0-3].attention")
    assert pattern.covers("layers.3.attention")
    assert pattern.covers("layers.3.attention.wo.weight")
    assert not pattern.covers("layers.3.attention_norm")
    assert not pattern.covers("layers.3")


@pytest.mark.parametrize(
    ("glob", "place", "word"),
    [
        ("", (0, 0), "empty"),
        ("a..b", (2, 3), "before this dot"),
        ("a.", (1, 2), "after the last dot"),
        ("{a,b", (0, 1), "not closed"),
        ("{a,}", (3, 4), "alternative is empty"),
        ("a}", (1, 2), "closes nothing"),
        ("a,b", (1, 2), "inside `{...}` only"),
        ("l.[0-3", (2, 3), "not closed"),
        ("l.[a-c]", (3, 6), "no list of numbers"),
        ("l.[3-1]", (3, 6), "1-3"),
        ("l.[0-99999]", (3, 10), "100000 numbers"),
        ("a***", (1, 4), "3 stars"),
        ("a**", (1, 3), "whole parts"),
        (r"layers\.\d+", (6, 7), "globs"),
        ("a b", (1, 2), "no character"),
        ("{" * 5000, (16, 17), "inside each other"),
        ("*a" * 9, (0, 18), "stars"),
        ("{a,b}" * 12, (0, 60), "4096"),
        ("{" + ",".join(f"n{i}" for i in range(900)) + "}[0-999]", None, "too many"),
    ],
)
def test_text_that_is_no_pattern_says_where(glob: str, place: tuple[int, int] | None, word: str) -> None:
    """A text that is no pattern is refused with the letters that it is about."""
    with pytest.raises(PatternError) as caught:
        Pattern.parse(glob)
    assert word in caught.value.message
    assert place is None or (caught.value.start, caught.value.end) == place


@given(st.text(alphabet="ab.*{},[]0-9 \\", max_size=24))
@settings(max_examples=500, deadline=None)
def test_any_text_parses_or_is_refused(text: str) -> None:
    """Any text is a pattern or a PatternError at a place inside it."""
    place = (0, 0)
    try:
        Pattern.parse(text).covers("a.b")
    except PatternError as error:
        place = (error.start, error.end)
    assert 0 <= place[0] <= place[1] <= len(text)


def test_equal_text_is_an_equal_pattern() -> None:
    """Patterns are values: equal text, equal pattern, equal hash."""
    assert Pattern.parse("a.*") == Pattern.parse("a.*")
    assert len({Pattern.parse("a.*"), Pattern.parse("a.*"), Pattern.parse("a.**")}) == 2
    assert str(Pattern.parse("a.*")) == "a.*"


def test_depth_counts_the_shortest_match() -> None:
    """Depth is the number of parts in the shortest name that matches."""
    assert Pattern.parse("layers.*.attention").depth == 3
    assert Pattern.parse("layers.**.wo").depth == 2
    assert Pattern.parse("{a.b.c,d}").depth == 1


def test_thousands_of_names_take_milliseconds() -> None:
    """A pattern is compiled once and matches thousands of names in a few milliseconds."""
    names = [f"layers.{i}.attention.wo.weight" for i in range(5000)]
    start = time.process_time()
    assert sum(Pattern("layers.*.{attention,feed_forward}").covers(name) for name in names) == 5000
    assert time.process_time() - start < 0.5


def test_alternatives_are_words_and_numbers() -> None:
    """A pattern has an alternative for each word of its braces, and one for each number of a list."""
    pattern = Pattern.parse("layers.[0,2-3].{wq,wk}")
    assert {each.text for each in pattern.alternatives()} == {
        f"layers.{number}.{word}" for number in (0, 2, 3) for word in ("wq", "wk")
    }
    assert [each.text for each in Pattern.parse("a.*").alternatives()] == ["a.*"]
