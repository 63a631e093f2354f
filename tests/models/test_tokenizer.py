"""The byte tokenizer: every text, one id a byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from meshlang_models.data import ByteTokenizer
from meshlang_models.data.tokenizer import BOS, EOS, MASK, PAD, VOCAB


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_survives_encoding(text: str) -> None:
    """decode(encode(text)) == text for every string, lone surrogates included."""
    tokenizer = ByteTokenizer()
    assert tokenizer.decode(tokenizer.encode(text, add_bos=True, add_eos=True)) == text


def test_ids_are_the_bytes_of_the_text() -> None:
    """A text's ids are its UTF-8 bytes, between begin and end of document where asked."""
    tokenizer = ByteTokenizer()
    assert tokenizer.encode("a\u00e9") == [97, 195, 169]
    assert tokenizer.encode("a", add_bos=True, add_eos=True) == [BOS, 97, EOS]


@given(st.lists(st.integers(0, VOCAB - 1)))
def test_any_ids_can_be_decoded(ids: list[int]) -> None:
    """Every list of ids in the vocabulary decodes to some text, as a sampled one must."""
    assert isinstance(ByteTokenizer().decode(ids), str)


def test_special_ids_are_distinct() -> None:
    """The special ids are above the bytes and below the vocabulary's size."""
    special = [BOS, EOS, PAD, MASK]
    assert sorted(set(special)) == special
    assert all(255 < i < VOCAB for i in special)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_vocabulary_divides_over_ranks(ranks: int) -> None:
    """The vocabulary divides by every tensor-parallel size of the small models."""
    assert ByteTokenizer().get_vocab_size() % ranks == 0


def test_built_as_torchtitan_builds_it() -> None:
    """The config builds with the path argument that torchtitan gives, and needs no file there."""
    tokenizer = ByteTokenizer.Config().build(tokenizer_path="no/such/folder")
    assert (tokenizer.bos_id, tokenizer.eos_id) == (BOS, EOS)
