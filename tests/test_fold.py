"""Equal things told as one: patterns that name these and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshlang.fold import fold
from meshlang.language.pattern import Pattern

NAMES = st.sets(
    st.one_of(
        st.builds("layers.{}.w".format, st.integers(0, 4)),
        st.builds("layers.{}.experts.{}.w".format, st.integers(0, 3), st.integers(0, 3)),
        st.builds("blocks.{}.{}.{}".format, st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)),
        st.just("norm"),
    ),
    min_size=1,
)


@given(known=NAMES, data=st.data())
def test_patterns_name_these_and_nothing_else(known: set[str], data: st.DataObject) -> None:
    """Of all known names, the patterns match exactly those that were folded, and no pattern comes twice."""
    some = data.draw(st.sets(st.sampled_from(sorted(known)), min_size=1))
    patterns = fold(sorted(some), known)
    assert {name for name in known if any(Pattern.parse(text).matches(name) for text in patterns)} == some
    assert len(set(patterns)) == len(patterns) <= len(some)


def test_two_numbers_are_folded_each() -> None:
    """Of 2 layers with 3 experts each, all but one are two patterns, and one expert of each layer is one."""
    known = [f"layers.{layer}.experts.{expert}" for layer in range(2) for expert in range(3)]
    assert fold(known, known) == ("layers.*.experts.*",)
    assert fold(known[1:], known) == ("layers.0.experts.[1-2]", "layers.1.experts.*")
    assert fold(known[1::3], known) == ("layers.*.experts.1",)
