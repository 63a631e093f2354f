"""Who attends to whom: one predicate, and the masks that are made of it.

The model sees two streams of one sequence side by side: the clean tokens, and one or more
corrupted copies (views) of them. A query sees

* its own block of its own stream, in both directions;
* the clean tokens of earlier blocks;
* nothing of another document.

So clean rows are block-causal among themselves and never see a corrupted row, and the views do not
see each other. With L tokens, blocks of K and n = L / K, one view and one document,
K^2 n (n + 1) pairs are allowed. The mask is that of BD3-LM (arXiv 2503.09573, section 3).

Blocks are counted along the sequence, not along a document: a block in which a document ends has
tokens of two, which do not see each other.

Shapes: B batch, T tokens of the sequence, R rows of all streams, Q query rows, S key rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.attention.flex_attention import BlockMask
from torchtitan.models.common.attention import create_attention_mask

MaskMod = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

#: The stream of the clean tokens; view v of the corrupted ones is stream v + 1.
CLEAN = 0


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What the predicate asks of each row.

    Attributes:
        stream: (R,), CLEAN or the number of a view plus 1.
        place: (R,), the index of the row's token in the whole sequence.
        document: (B, R), the same number for tokens of one document.
    """

    stream: torch.Tensor
    place: torch.Tensor
    document: torch.Tensor

    def take(self, index: torch.Tensor) -> Rows:
        """The rows at these indices, in this order."""
        return Rows(stream=self.stream[index], place=self.place[index], document=self.document[:, index])


def attends(
    query_stream: torch.Tensor,
    query_place: torch.Tensor,
    query_document: torch.Tensor,
    key_stream: torch.Tensor,
    key_place: torch.Tensor,
    key_document: torch.Tensor,
    block_size: int,
) -> torch.Tensor:
    """Whether a query sees a key; the arguments are broadcast against each other."""
    query_block, key_block = query_place // block_size, key_place // block_size
    own = (query_stream == key_stream) & (query_block == key_block)
    earlier = (key_stream == CLEAN) & (key_block < query_block)
    return (query_document == key_document) & (own | earlier)


def documents(positions_BT: torch.Tensor) -> torch.Tensor:
    """A number for each document of packed sequences, whose positions begin at 0 with each: (B, T)."""
    return (positions_BT == 0).cumsum(1)


def rows_of(document_BT: torch.Tensor, views: int = 1) -> Rows:
    """The rows of whole sequences as the model has them: the views one after another, then the clean tokens."""
    length, device = document_BT.size(1), document_BT.device
    streams = [*range(1, views + 1), CLEAN]
    return Rows(
        stream=torch.tensor(streams, device=device).repeat_interleave(length),
        place=torch.arange(length, device=device).repeat(views + 1),
        document=document_BT.repeat(1, views + 1),
    )


def mask_mod(queries: Rows, keys: Rows, block_size: int) -> MaskMod:
    """The predicate as FlexAttention asks for it: of a batch, a head and the indices of two rows."""

    def allowed(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        query = queries.stream[q], queries.place[q], queries.document[b, q]
        return attends(*query, keys.stream[k], keys.place[k], keys.document[b, k], block_size)

    return allowed


def dense_mask(queries: Rows, keys: Rows, block_size: int) -> torch.Tensor:
    """The predicate for each pair of rows: (B, Q, S)."""
    return attends(
        queries.stream[None, :, None],
        queries.place[None, :, None],
        queries.document[:, :, None],
        keys.stream[None, None, :],
        keys.place[None, None, :],
        keys.document[:, None, :],
        block_size,
    )


def block_mask(queries: Rows, keys: Rows, block_size: int, tile: int | tuple[int, int]) -> BlockMask:
    """The predicate as a block mask of FlexAttention, whose kernel works on tiles of `tile` rows."""
    batch, count = queries.document.shape
    return create_attention_mask(
        mask_mod(queries, keys, block_size),
        batch,
        None,
        count,
        keys.document.size(1),
        device=queries.document.device,
        BLOCK_SIZE=tile,
    )
