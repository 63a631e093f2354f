"""Which tokens each rank has, and its rows of a mask: the same as torch's own context parallelism."""

from typing import Any

import pytest
import torch
from torch.distributed.tensor.experimental._context_parallel import _attention as theirs
from torch.distributed.tensor.experimental._context_parallel._load_balancer import _HeadTailLoadBalancer
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask

from meshlang.lowering.sequence import cut_rows, cut_tokens, tokens_of, whole_order

PARTS = (1, 2, 3, 4)

BALANCES = ("head_tail", "none")


@pytest.mark.parametrize("balance", BALANCES)
@pytest.mark.parametrize("parts", PARTS)
def test_every_token_has_one_rank(parts: int, balance: str) -> None:
    """The tokens of all ranks are all tokens, as many on each rank."""
    order = whole_order(parts, 48, balance)
    assert sorted(order.tolist()) == list(range(48))
    assert {len(tokens_of(index, parts, 48, balance)) for index in range(parts)} == {48 // parts}


@pytest.mark.parametrize("parts", PARTS)
def test_head_and_tail_are_those_of_torch(parts: int) -> None:
    """The order of all ranks' tokens is that of torch's head-tail load balancer."""
    indices = _HeadTailLoadBalancer(48, parts, "cpu")._generate_indices()
    assert whole_order(parts, 48, "head_tail").tolist() == indices[0].tolist()


@pytest.mark.parametrize("parts", PARTS)
def test_head_and_tail_share_causal_work(parts: int) -> None:
    """Every rank's queries see the same number of keys in all, where the mask is causal."""
    seen = {int((tokens_of(index, parts, 48, "head_tail") + 1).sum()) for index in range(parts)}
    assert len(seen) == 1


def test_tokens_are_cut_along_dim_one() -> None:
    """cut_tokens(x) == x[:, tokens_of(...)]."""
    x = torch.arange(2 * 8 * 3).reshape(2, 8, 3)
    assert torch.equal(cut_tokens(x, 1, 2, "head_tail"), x[:, [2, 3, 4, 5]])
    assert torch.equal(cut_tokens(x, 1, 2, "none"), x[:, [4, 5, 6, 7]])


def packed(batch: int, length: int) -> BlockMask:
    """A causal mask of documents, another one in each sequence."""
    documents = (torch.arange(length)[None, :] * (torch.arange(batch)[:, None] + 2)) // length

    def mask_mod(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return (q >= k) & (documents[b, q] == documents[b, k])

    return create_block_mask(mask_mod, batch, None, length, length, device="cpu")


def dense(mask: BlockMask) -> torch.Tensor:
    """A mask as booleans."""
    return create_mask(mask.mask_mod, *mask.shape, device="cpu")


class OneAxis:
    """What torch asks of a mesh of one axis."""

    device_type = "cpu"

    def __init__(self, ranks: int, rank: int) -> None:
        self.ranks, self.rank = ranks, rank

    def size(self) -> int:
        """Ranks of the axis."""
        return self.ranks

    def get_local_rank(self) -> int:
        """Where this rank is."""
        return self.rank


@pytest.mark.parametrize("balance", BALANCES)
def test_rows_are_those_of_torch(balance: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank's rows of a mask, against keys gathered in rank order, are those that torch makes."""
    monkeypatch.setattr(theirs, "_compiled_create_block_mask", create_block_mask)
    mask = packed(2, 512)
    balancer = _HeadTailLoadBalancer(512, 2, "cpu") if balance == "head_tail" else None
    monkeypatch.setattr(theirs, "_create_default_load_balancer", lambda *_: None)
    for rank in range(2):
        mesh: Any = OneAxis(2, rank)
        rows: BlockMask = theirs._create_cp_block_mask(mask.mask_mod, 2, 1, 512, 512, mesh, balancer)
        assert torch.equal(dense(cut_rows(mask, rank, 2, balance)), dense(rows))


@pytest.mark.parametrize("balance", BALANCES)
def test_rows_may_be_of_any_length(balance: str) -> None:
    """Lengths that torch refuses, not a multiple of 128 a rank, have the rows that indexing gives."""
    mask = packed(2, 72)
    whole = dense(mask)
    for rank in range(2):
        rows, columns = tokens_of(rank, 2, 72, balance), whole_order(2, 72, balance)
        assert torch.equal(dense(cut_rows(mask, rank, 2, balance)), whole[:, :, rows][:, :, :, columns])
