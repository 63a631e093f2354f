"""Corrupted text as batches: shapes, and that no mesh, no split and no resume changes a sample."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from meshlang_models.block_diffusion.data import CorruptedTextDataLoader
from meshlang_models.data import ByteTokenizer, LocalTextDataLoader
from meshlang_models.data.tokenizer import BOS, MASK
from torchtitan.components.tokenizer import BaseTokenizer

#: One sample of a batch: input, positions, clean, clean positions, labels.
Row = tuple[list[int], ...]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of documents of different lengths."""
    for index, size in enumerate((5, 40, 23, 90, 61)):
        (tmp_path / f"{index}.txt").write_text("".join(chr(97 + (i * i + index) % 26) for i in range(size)))
    return tmp_path


def loader(folder: Path, *, dp: int = 1, rank: int = 0, batch: int = 2, **fields: Any) -> CorruptedTextDataLoader:
    """The loader of one rank, in sequences of 16 tokens and blocks of 4."""
    config = CorruptedTextDataLoader.Config(path=str(folder), block_size=4, **fields)
    return config.build(dp_world_size=dp, dp_rank=rank, tokenizer=ByteTokenizer(), seq_len=16, local_batch_size=batch)


def rows(data: CorruptedTextDataLoader, batches: int) -> list[Row]:
    """The samples of the next batches."""
    names = ("input", "positions", "clean", "clean_positions")
    found: list[Row] = []
    for inputs, labels in islice(data, batches):
        found += zip(*(inputs[name].tolist() for name in names), labels.tolist(), strict=True)
    return found


@pytest.mark.parametrize(("dp", "batch"), [(2, 1), (2, 4), (4, 2), (1, 8), (8, 1)])
def test_samples_are_the_same_on_any_mesh(folder: Path, dp: int, batch: int) -> None:
    """Over all ranks, a step of 8 samples is the same one, bit for bit, for any dp and microbatch."""
    passes = 8 // (dp * batch)
    for steps in (1, 2):
        whole = rows(loader(folder, batch=8), steps)
        parts = [rows(loader(folder, dp=dp, rank=rank, batch=batch), steps * passes) for rank in range(dp)]
        assert sorted(whole) == sorted(row for part in parts for row in part)


@pytest.mark.parametrize("dp", [1, 2, 4])
def test_resumed_run_goes_on_with_the_same_noise(folder: Path, dp: int) -> None:
    """After a resume, on any number of ranks, the samples are those of the run that was not stopped."""
    whole = rows(loader(folder, batch=4), 5)
    first = loader(folder, batch=4)
    rows(first, 3)
    resumed = [loader(folder, dp=dp, rank=rank, batch=4 // dp) for rank in range(dp)]
    for each in resumed:
        each.load_state_dict(first.state_dict())
    assert sorted(row for each in resumed for row in rows(each, 2)) == sorted(whole[12:])


def test_clean_tokens_are_the_text_s(folder: Path) -> None:
    """Clean tokens and positions are those of LocalTextDataLoader, for both streams."""
    options = {"dp_world_size": 1, "dp_rank": 0, "seq_len": 16, "local_batch_size": 2}
    text = LocalTextDataLoader.Config(path=str(folder)).build(tokenizer=ByteTokenizer(), **options)
    batch, _ = next(iter(text))
    found, _ = next(iter(loader(folder)))
    assert torch.equal(found["clean"], batch["input"])
    assert torch.equal(found["clean_positions"], batch["positions"])
    assert torch.equal(found["positions"], batch["positions"])


def test_seed_changes_the_noise_only(folder: Path) -> None:
    """Another seed corrupts other tokens of the same text."""
    one, other = (next(iter(loader(folder, seed=seed)))[0] for seed in (0, 1))
    assert torch.equal(one["clean"], other["clean"])
    assert not torch.equal(one["input"], other["input"])


def test_first_token_of_a_document_is_shown(folder: Path) -> None:
    """The token that begins a document is never corrupted."""
    for inputs, _ in islice(loader(folder, batch=16), 3):
        assert (inputs["input"][inputs["clean"] == BOS] == BOS).all()
        assert (inputs["clean"] == BOS).any()


def test_views_apart_and_shared_are_the_same(folder: Path) -> None:
    """Both views of a sample beside one clean copy are the two rows that have a copy each."""
    apart, labels = next(iter(loader(folder, objective="complementary")))
    shared, shared_labels = next(iter(loader(folder, objective="complementary", share_clean=True)))
    assert apart["input"].shape == (4, 16)
    assert shared["input"].shape == (2, 32)
    assert torch.equal(apart["input"].view(2, 32), shared["input"])
    assert torch.equal(apart["positions"].view(2, 32), shared["positions"])
    assert torch.equal(labels.view(2, 32), shared_labels)
    assert torch.equal(apart["clean"][::2], shared["clean"])
    assert torch.equal(apart["clean"][1::2], shared["clean"])
    hidden = apart["input"] == MASK
    assert torch.equal(hidden[::2] ^ hidden[1::2], shared["clean"] != BOS)


def test_tokenizer_needs_a_mask_token(folder: Path) -> None:
    """A tokenizer without a mask token is an error that names it."""

    class Plain(BaseTokenizer):
        def encode(self, *args: Any, **options: Any) -> list[int]:
            return []

        def decode(self, *args: Any, **options: Any) -> str:
            return ""

        def get_vocab_size(self) -> int:
            return 1

    config = CorruptedTextDataLoader.Config(path=str(folder))
    with pytest.raises(ValueError, match="Plain has no `mask_id`"):
        config.build(dp_world_size=1, dp_rank=0, tokenizer=Plain(), seq_len=16, local_batch_size=1)
