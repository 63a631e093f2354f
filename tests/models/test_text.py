"""Local text as training samples: packing, ranks, resuming."""

from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from meshlang_models.data import ByteTokenizer, LocalTextDataLoader
from meshlang_models.data.tokenizer import BOS, EOS

DOCUMENTS = ["ab", "hello world", "", "x" * 40, "\u00e9\n", "the last document"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of documents of very different lengths, one of them empty."""
    for index, text in enumerate(DOCUMENTS):
        (tmp_path / f"{index}.txt").write_text(text, encoding="utf-8")
    return tmp_path


def loader(
    folder: Path, *, dp: int = 1, rank: int = 0, batch: int = 1, seq: int = 8, **fields: Any
) -> LocalTextDataLoader:
    """The loader of one rank over the folder, in sequences of 8 tokens."""
    config = LocalTextDataLoader.Config(path=str(folder), **fields)
    return config.build(dp_world_size=dp, dp_rank=rank, tokenizer=ByteTokenizer(), seq_len=seq, local_batch_size=batch)


def rows(loader: LocalTextDataLoader, batches: int) -> list[tuple[list[int], list[int], list[int]]]:
    """Each sample of the next batches as plain lists: input, positions, labels."""
    found = []
    for inputs, labels in islice(loader, batches):
        found += zip(inputs["input"].tolist(), inputs["positions"].tolist(), labels.tolist(), strict=True)
    return found


def test_batch_has_what_the_trainer_reads(folder: Path) -> None:
    """A batch is input and positions, and labels, all int64 of (batch, seq)."""
    inputs, labels = next(iter(loader(folder, batch=3, seq=8)))
    assert set(inputs) == {"input", "positions"}
    assert all(x.shape == (3, 8) and x.dtype == torch.int64 for x in (*inputs.values(), labels))


def test_labels_are_the_next_tokens_of_the_document(folder: Path) -> None:
    """In one lane the samples are all documents in order, each label the token after its input."""
    pairs = [pair for text in filter(None, DOCUMENTS) for ids in [[BOS, *text.encode(), EOS]] for pair in pairwise(ids)]
    samples = rows(loader(folder, lanes=1, seq=8), len(pairs) // 8)
    got = [pair for inputs, _, labels in samples for pair in zip(inputs, labels, strict=True)]
    assert got == pairs[: len(got)]


def test_positions_restart_at_each_document(folder: Path) -> None:
    """Positions count up by one, and are 0 at a document's begin and at a sample's start."""
    for inputs, positions, _ in rows(loader(folder, seq=8), 40):
        expected = []
        for token in inputs:
            expected.append(0 if token == BOS or not expected else expected[-1] + 1)
        assert positions == expected


def test_neighbouring_samples_come_from_different_documents(folder: Path) -> None:
    """Sample s is read from lane s % lanes, so that one batch mixes documents."""
    starts = [bytes(inputs[1:3]) for inputs, _, _ in rows(loader(folder, seq=3), 5)]
    assert starts == [b"ab", b"he", b"xx", "\u00e9".encode(), b"th"]


@pytest.mark.parametrize("dp", [1, 2, 4])
@pytest.mark.parametrize("local_batch", [1, 2])
def test_global_batch_is_the_same_for_any_ranks(folder: Path, dp: int, local_batch: int) -> None:
    """Rank r takes the samples s with s % dp == r, so a step's samples do not depend on dp."""
    whole = rows(loader(folder, batch=1), 24)
    steps = 24 // (dp * local_batch)
    split = [rows(loader(folder, dp=dp, rank=rank, batch=local_batch), steps) for rank in range(dp)]
    assert [split[s % dp][s // dp] for s in range(24)] == whole


def test_samples_go_on_past_the_last_document(folder: Path) -> None:
    """In one lane the stream repeats after its pairs, at any offset within a sample."""
    pairs = sum(len(text.encode()) + 1 for text in DOCUMENTS if text)
    samples = rows(loader(folder, lanes=1, seq=5), pairs * 2)
    tokens = [token for inputs, _, _ in samples for token in inputs]
    assert tokens[:pairs] * 10 == tokens


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (2, 4), (4, 1)])
def test_resume_goes_on_at_the_next_sample(folder: Path, before: int, after: int) -> None:
    """A run resumed with any number of ranks reads exactly the samples that come next."""
    whole = rows(loader(folder, batch=1), 24)
    saved = []
    for rank in range(before):
        first = loader(folder, dp=before, rank=rank, batch=2)
        rows(first, 8 // (2 * before))
        saved.append(first.state_dict())
    assert all(state == saved[0] for state in saved)
    resumed = [loader(folder, dp=after, rank=rank, batch=2) for rank in range(after)]
    for each in resumed:
        each.load_state_dict(saved[0])
    split = [rows(each, 16 // (2 * after)) for each in resumed]
    assert [split[s % after][s // after] for s in range(16)] == whole[8:]


def test_state_counts_only_batches_handed_out(folder: Path) -> None:
    """Nothing is read ahead: the state after n batches is the sample after them."""
    text = loader(folder, dp=2, batch=3)
    batches = iter(text)
    assert text.state_dict()["next_sample"] == 0
    next(batches)
    next(batches)
    assert text.state_dict()["next_sample"] == 12


def test_resume_on_other_text_is_refused(folder: Path) -> None:
    """A saved position does not load where the files, the lanes or the length differ."""
    state = loader(folder).state_dict()
    with pytest.raises(ValueError, match=r"sequence length \(8\) differ"):
        loader(folder, seq=16).load_state_dict(state)
    with pytest.raises(ValueError, match=r"lanes \(5\) differ"):
        loader(folder, lanes=2).load_state_dict(state)
    (folder / "new.txt").write_text("more")
    with pytest.raises(ValueError, match="text files"):
        loader(folder).load_state_dict(state)


def test_empty_state_changes_nothing(folder: Path) -> None:
    """A checkpoint without a loader's state leaves it at the start."""
    text = loader(folder)
    text.load_state_dict({})
    assert text.state_dict()["next_sample"] == 0


def test_hub_dataset_is_refused(folder: Path) -> None:
    """A dataset name, which this loader would ignore, is an error that names the right field."""
    with pytest.raises(ValueError, match="by `path`"):
        loader(folder, dataset="c4")


def test_lanes_below_one_are_refused(folder: Path) -> None:
    """At least one lane is read."""
    with pytest.raises(ValueError, match="lanes is 0"):
        loader(folder, lanes=0)
