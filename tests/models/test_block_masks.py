"""Who attends to whom: the predicate, against its own statement, and the masks made of it."""

import pytest
import torch
from meshlang_models.block_diffusion.masks import CLEAN, Rows, block_mask, dense_mask, documents, mask_mod, rows_of
from torch.nn.attention.flex_attention import create_mask

from meshlang.runtime import device


@pytest.fixture(autouse=True)
def _cpu() -> None:
    """Block masks are made without compilation, as a launch on a CPU makes them."""
    device.prepare("cpu")


def whole(length: int, views: int = 1) -> Rows:
    """The rows of one sequence of one document."""
    return rows_of(torch.ones(1, length, dtype=torch.int64), views)


def by_words(rows: Rows, q: int, k: int, size: int) -> bool:
    """The table of the objective, one pair at a time."""
    if rows.document[0, q] != rows.document[0, k]:
        return False
    query, key = int(rows.place[q]) // size, int(rows.place[k]) // size
    if rows.stream[q] == CLEAN:
        return bool(rows.stream[k] == CLEAN) and query >= key
    if rows.stream[k] == CLEAN:
        return query > key
    return bool(rows.stream[q] == rows.stream[k]) and query == key


@pytest.mark.parametrize(("size", "blocks"), [(1, 1), (1, 7), (4, 1), (4, 6), (3, 5)])
def test_pairs_are_counted(size: int, blocks: int) -> None:
    """One view of n blocks of K tokens has K^2 n (n + 1) pairs."""
    rows = whole(size * blocks)
    assert int(dense_mask(rows, rows, size).sum()) == size**2 * blocks * (blocks + 1)


def test_shared_clean_tokens_save_pairs() -> None:
    """Two views beside one clean copy have K^2 n (3 n + 3) / 2 pairs, three quarters of twice the pairs of one."""
    size, blocks = 4, 6
    rows = whole(size * blocks, views=2)
    assert int(dense_mask(rows, rows, size).sum()) == size**2 * blocks * (3 * blocks + 3) // 2


@pytest.mark.parametrize("views", [1, 2])
def test_predicate_says_the_table(views: int) -> None:
    """Each pair of rows is allowed just when the table of the objective says so, over documents too."""
    rows = rows_of(documents(torch.tensor([[0, 1, 2, 3, 4, 0, 1, 0, 1, 2, 3, 4]])), views)
    found = dense_mask(rows, rows, 4)[0]
    count = 12 * (views + 1)
    assert found.tolist() == [[by_words(rows, q, k, 4) for k in range(count)] for q in range(count)]


def test_every_row_sees_itself() -> None:
    """No row is without a key, at whatever place a document begins."""
    rows = rows_of(documents(torch.tensor([[0, 1, 2, 0, 0, 1, 2, 3]])), 2)
    assert dense_mask(rows, rows, 4)[0].diagonal().all()


@pytest.mark.parametrize("size", [4, 32])
def test_block_mask_is_the_dense_one(size: int) -> None:
    """FlexAttention's mask has the same pairs, for packed sequences of several documents."""
    positions = torch.stack([torch.arange(64), torch.cat([torch.arange(20), torch.arange(44)])])
    rows = rows_of(documents(positions))
    mask = block_mask(rows, rows, size, 16)
    found = create_mask(mask.mask_mod, 2, None, 128, 128, device="cpu")
    assert mask.shape == (2, 1, 128, 128)
    assert torch.equal(found[:, 0], dense_mask(rows, rows, size))


def test_tiles_cover_all_pairs() -> None:
    """A tile that the block mask leaves out holds no pair."""
    rows = whole(64)
    mask = block_mask(rows, rows, 16, 16)
    pairs = dense_mask(rows, rows, 16)[0].view(8, 16, 8, 16).any(3).any(1)
    assert torch.equal(mask.to_dense()[0, 0].bool(), pairs)


def test_taken_rows_keep_their_pairs() -> None:
    """Rows in another order, or some of them, have the pairs that they had."""
    rows = rows_of(documents(torch.tensor([[0, 1, 2, 3, 4, 5, 0, 1]])))
    order = torch.tensor([13, 2, 7, 8, 0])
    part = rows.take(order)
    assert torch.equal(dense_mask(part, part, 2)[0], dense_mask(rows, rows, 2)[0][order][:, order])
    allowed = mask_mod(part, rows, 2)(torch.tensor(0), torch.tensor(0), torch.tensor(1), torch.arange(16))
    assert torch.equal(allowed, dense_mask(rows, rows, 2)[0, 2])


def test_documents_are_numbered() -> None:
    """A document begins where positions begin at 0; one that is cut by the sample's start counts too."""
    assert documents(torch.tensor([[0, 1, 0, 1, 2], [0, 0, 1, 2, 3]])).tolist() == [[1, 1, 2, 2, 2], [1, 2, 2, 2, 2]]
