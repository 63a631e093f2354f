"""Llama layers that can leave rows out once attention has their keys and values.

Shapes: B batch, R rows, D hidden, N heads, H head dim.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torchtitan.models.common.attention import AttentionMasksType, GQAttention

from ..llama.model import LlamaBlock


class TwoStreamAttention(GQAttention):
    """Grouped-query attention whose queries may be the first rows only."""

    @dataclass(kw_only=True, slots=True)
    class Config(GQAttention.Config):
        """The fields of GQAttention.Config."""

    def forward(
        self,
        x_BLD: torch.Tensor,
        attention_masks: AttentionMasksType | None,
        positions: torch.Tensor | None = None,
        *,
        kept: int | None = None,
    ) -> torch.Tensor:
        """As GQAttention's; of the first `kept` rows only where that is given."""
        if kept is None:
            return super().forward(x_BLD, attention_masks, positions)
        assert positions is not None
        q_BRNH, k_BRNH, v_BRNH = self._projected(x_BLD, kept)
        q_BRNH, first = self.rope(q_BRNH, k_BRNH[:, :kept], positions[:, :kept])
        _, rest = self.rope(k_BRNH[:, kept:], k_BRNH[:, kept:], positions[:, kept:])
        out_BRNH = self.inner_attention(
            q_BRNH,
            torch.cat([first, rest], dim=1),
            v_BRNH,
            attention_masks=attention_masks,
            scale=self.scaling,
            enable_gqa=self.enable_gqa,
        )
        return self.wo(out_BRNH.contiguous().flatten(2))

    def _projected(self, x_BRD: torch.Tensor, kept: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries of the first rows, keys and values of all."""
        parts: Any = self.qkv_linear
        made = (parts.wq(x_BRD[:, :kept]), parts.wk(x_BRD), parts.wv(x_BRD))
        q, k, v = (x.unflatten(2, (-1, self.head_dim)) for x in made)
        return q, k, v


class TwoStreamBlock(LlamaBlock):
    """A Llama layer that gives its first rows only, when asked to."""

    @dataclass(kw_only=True, slots=True)
    class Config(LlamaBlock.Config):
        """The fields of LlamaBlock.Config."""

    def forward(
        self,
        x: torch.Tensor,
        attention_masks: AttentionMasksType | None,
        positions: torch.Tensor | None = None,
        *,
        kept: int | None = None,
    ) -> torch.Tensor:
        """The layer's output, (B, R, D) as its input, or of its first `kept` rows."""
        if kept is None:
            return super().forward(x, attention_masks, positions)
        x = x[:, :kept] + self.attention(self.attention_norm(x), attention_masks, positions, kept=kept)
        return x + self.feed_forward(self.ffn_norm(x))


def two_stream_layer(config: Any) -> TwoStreamBlock.Config:
    """The config of a Llama layer, as one that can leave rows out."""
    attention = config.attention
    values = {field.name: getattr(attention, field.name) for field in fields(attention) if field.init}
    config = {field.name: getattr(config, field.name) for field in fields(config) if field.init}
    return TwoStreamBlock.Config(**{**config, "attention": TwoStreamAttention.Config(**values)})
