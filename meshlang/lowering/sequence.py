"""Which tokens of a sequence each rank of an axis has, and what is cut accordingly.

Shapes: B sequences, L tokens of a whole sequence, T tokens of one rank.
"""

from __future__ import annotations

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask


def tokens_of(index: int, parts: int, seq: int, balance: str, device: torch.device | str = "cpu") -> torch.Tensor:
    """Where the tokens of rank `index` of `parts` stand in the whole sequence, (T,), in the rank's own order.

    Args:
        balance: "head_tail" gives parts `index` and `2 * parts - 1 - index` of twice as many, any
            other word part `index`. torchtitan's load balancer calls the first "headtail".
    """
    cuts = 2 * parts if balance == "head_tail" else parts
    assert seq % cuts == 0, f"{seq} tokens in {cuts} parts"
    length = seq // cuts
    mine = (index, cuts - 1 - index) if balance == "head_tail" else (index,)
    runs = [torch.arange(part * length, (part + 1) * length, device=device) for part in mine]
    return torch.cat(runs)


def whole_order(parts: int, seq: int, balance: str, device: torch.device | str = "cpu") -> torch.Tensor:
    """Where the tokens of all ranks stand, rank after rank, (L,): the order of gathered keys."""
    return torch.cat([tokens_of(index, parts, seq, balance, device) for index in range(parts)])


def cut_tokens(x: torch.Tensor, index: int, parts: int, balance: str) -> torch.Tensor:
    """One rank's tokens of a tensor (B, L, ...)."""
    return x.index_select(1, tokens_of(index, parts, x.size(1), balance, x.device))


def cut_rows(mask: BlockMask, index: int, parts: int, balance: str) -> BlockMask:
    """The mask of one rank's queries against the keys of all ranks, gathered in rank order."""
    batch, heads, queries, keys = mask.shape
    device = mask.kv_num_blocks.device
    rows = tokens_of(index, parts, queries, balance, device)
    columns = whole_order(parts, keys, balance, device)
    whole = mask.mask_mod

    def mask_mod(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return whole(b, h, rows[q], columns[k])

    return create_block_mask(mask_mod, batch, heads, len(rows), keys, device=str(device), BLOCK_SIZE=mask.BLOCK_SIZE)
