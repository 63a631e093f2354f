"""The nearest known name."""

from __future__ import annotations

import string

from hypothesis import assume, given
from hypothesis import strategies as st

from meshlang.near import distance, near

WORDS = st.text(alphabet=string.ascii_lowercase + "_", min_size=2, max_size=12)
KNOWN = ("batch", "seq", "heads", "kv_heads", "mlp", "vocab", "microbatches", "subsequences")


@given(WORDS, st.data())
def test_one_edit_is_always_found(word: str, data: st.DataObject) -> None:
    """A known name with one letter more, less, other, or two swapped is found."""
    i = data.draw(st.integers(0, len(word) - 1))
    letter = data.draw(st.sampled_from(string.ascii_lowercase))
    swapped = word[:i] + word[i : i + 2][::-1] + word[i + 2 :]
    assume(i < len(word) - 1 or len(word) > 2)
    for edited in (word[:i] + word[i + 1 :], word[:i] + letter + word[i:], word[:i] + letter + word[i + 1 :]):
        assert near(edited, [word]) == word
    assert len(word) == 2 or near(swapped, [word]) == word


def test_nearest_of_several_wins() -> None:
    """The name with the fewest edits is given."""
    assert near("kv_head", KNOWN) == "kv_heads"
    assert near("head", KNOWN) == "heads"
    assert near("micro-batches", KNOWN) == "microbatches"


def test_case_and_dashes_count_nothing() -> None:
    """`-` is read as `_`, and case is ignored."""
    assert near("KV-Heads", KNOWN) == "kv_heads"
    assert near("tp", ["TP"]) == "TP"


def test_far_names_are_not_offered() -> None:
    """A name that shares little with every known one has no near name."""
    assert near("optimizer", KNOWN) is None
    assert near("x", ["y"]) is None
    assert near("", KNOWN) is None
    assert near("seq", ()) is None


@given(WORDS, WORDS)
def test_distance_is_symmetric(one: str, other: str) -> None:
    """Edits count the same both ways, and none only between equal texts."""
    assert distance(one, other) == distance(other, one)
    assert (distance(one, other) == 0) == (one == other)
