"""A decoder of Llama layers that sees a sequence twice: its clean tokens, and corrupted copies of them.

All rows, corrupted ones first, go through embedding, norms, projections and feed-forward as one
tensor; only attention knows who is who, by its mask. Logits are given for the corrupted rows. The
parameters are those of models/llama under the same names, so its checkpoints load.

Shapes: B batch, T tokens of a sequence, D hidden, R rows: the corrupted ones and the T clean ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn
from torch.nn.attention.flex_attention import BlockMask
from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.models.common import Decoder
from torchtitan.models.common.attention import AttentionMasksType, FlexAttention
from torchtitan.models.utils import get_dense_model_nparams_and_flops
from torchtitan.protocols.model_spec import ModelSpec

from ..llama.model import Sizes, llama_config, parallelize_one_rank
from .data import CorruptedTextDataLoader
from .layers import two_stream_layer
from .masks import block_mask, documents, rows_of

_TINY = Sizes(layers=4, embed=128, heads=8, kv_heads=4, mlp=256, vocab=264)

#: By the card's names; the first three differ in their data only.
FLAVORS = {
    "tiny": _TINY,
    "tiny_complementary": _TINY,
    "tiny_shared": _TINY,
    "debug": Sizes(layers=6, embed=256, heads=16, kv_heads=8, mlp=768, vocab=2048),
    "1B": Sizes(layers=16, embed=2048, heads=32, kv_heads=8, mlp=8192, vocab=128256, rope_theta=500000.0),
    "8B": Sizes(layers=32, embed=4096, heads=32, kv_heads=8, mlp=14336, vocab=128256, rope_theta=500000.0),
}


class BlockDiffusion(Decoder):
    """A decoder over two streams."""

    @dataclass(kw_only=True, slots=True)
    class Config(Decoder.Config):
        """The fields of Decoder.Config, and what the mask needs. A run takes both from its data loader."""

        block_size: int = 16
        """Tokens that are denoised together."""

        views: int = 1
        """Corrupted copies beside one clean one."""

        def update_from_config(self, *, config: Any, **options: Any) -> None:
            """Block size and views are those of the run's data.

            Raises:
                ValueError: the sequences do not divide into blocks.
            """
            super(BlockDiffusion.Config, self).update_from_config(config=config, **options)
            data = getattr(config, "dataloader", None)
            if not isinstance(data, CorruptedTextDataLoader.Config):
                return
            length = config.training.seq_len
            if length % data.block_size:
                raise ValueError(f"sequences of {length} tokens do not divide into blocks of {data.block_size}")
            self.block_size, self.views = data.block_size, data.views

        def get_nparams_and_flops(self, model: nn.Module, seq_len: int) -> tuple[int, int]:
            """The model's parameters, and its floating-point operations a label.

            A label has a corrupted row, which meets `seq_len` keys in the mean, and its share of the
            clean rows; every row is counted with the head, as if it had logits.
            """
            attention = self.layers[0].attention
            count, flops = get_dense_model_nparams_and_flops(
                model,
                n_layers=len(self.layers),
                n_heads=attention.n_heads,
                head_dims=2 * attention.head_dim,
                seq_len=seq_len // 2,
                enable_weight_tying=self.enable_weight_tying,
            )
            return count, flops + flops // self.views

    #: Leave clean rows out of the last layer once it has their keys and values; for attention that takes fewer
    #: queries than keys, which the model's own mask is not for.
    prune_last: bool = False

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor | None = None,
        attention_masks: AttentionMasksType | None = None,
        *,
        clean: torch.Tensor | None = None,
        clean_positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Logits of the corrupted rows; of a part of the model without a head all rows, (B, R, D).

        Args:
            tokens: corrupted ids, views one after another, (B, views * T); rows (B, R, D) for a part
                of the model without embeddings.
            positions: of the corrupted rows, as in the data; the same number for the same token of both.
            clean: clean ids, (B, T). Without them all rows are taken for corrupted ones.
        """
        rows = tokens
        if clean is not None:
            if positions is None or clean_positions is None:
                raise ValueError("two streams need the positions of both")
            positions = torch.cat([positions, clean_positions], dim=1)
            if self.tok_embeddings is not None:
                rows = torch.cat([tokens, clean], dim=1)
        h = self.tok_embeddings(rows) if self.tok_embeddings is not None else rows
        kept = h.size(1) - clean.size(1) if clean is not None and self._prunes() else None
        for index, layer in enumerate(self.layers.values(), 1):
            last = {} if kept is None or index < len(self.layers) else {"kept": kept}
            h = layer(h, attention_masks, positions, **last)
        h = self.norm(h) if self.norm is not None else h
        if self.lm_head is None:
            return h
        if clean is not None and kept is None and not self._pruned_before():
            h = h[:, : h.size(1) - clean.size(1)]
        return h if self._skip_lm_head else self.lm_head(h)

    def _prunes(self) -> bool:
        """Whether the model's last layer is here, and is to leave out clean rows."""
        return self.prune_last and self._last_layer in self.layers

    def _pruned_before(self) -> bool:
        """Whether a part of the model before this one has left out clean rows: this is the head, and no layer."""
        return self.prune_last and self._last_layer not in self.layers

    @property
    def _last_layer(self) -> str:
        """Its name; the config is that of the whole model, also of a part of one."""
        assert isinstance(self.config, BlockDiffusion.Config)
        return str(len(self.config.layers) - 1)

    def get_attention_masks(self, positions: torch.Tensor) -> BlockMask:
        """The mask of all rows, from the positions of the corrupted ones, (B, views * T)."""
        config = self.config
        assert isinstance(config, BlockDiffusion.Config)
        assert config.first_attention is not None
        inner = config.first_attention.inner_attention
        if not isinstance(inner, FlexAttention.Config):
            raise TypeError(f"block diffusion needs a mask, which {type(inner).__name__} does not take")
        document_BT = documents(positions[:, : positions.size(1) // config.views])
        rows = rows_of(document_BT, config.views)
        return block_mask(rows, rows, config.block_size, inner.block_size)


def block_diffusion_config(sizes: Sizes) -> BlockDiffusion.Config:
    """The model's config at these sizes: that of a Llama, and two streams."""
    llama = llama_config(sizes)
    config = BlockDiffusion.Config(**{field.name: getattr(llama, field.name) for field in fields(llama) if field.init})
    config.layers = [two_stream_layer(layer) for layer in config.layers]
    return config


def model_registry(flavor: str) -> ModelSpec:
    """The named flavor as a torchtitan model spec, without any sharding."""
    if flavor not in FLAVORS:
        raise ValueError(f'block diffusion has no flavor "{flavor}"; it has {", ".join(FLAVORS)}')
    parallelize: Callable[..., nn.Module] = parallelize_one_rank
    return ModelSpec(
        name="block_diffusion",
        flavor=flavor,
        model=block_diffusion_config(FLAVORS[flavor]),
        parallelize_fn=parallelize,
        pipelining_fn=pipeline_llm,
        post_optimizer_build_fn=None,
        state_dict_adapter=None,
    )
