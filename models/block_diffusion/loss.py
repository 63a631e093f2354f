"""Cross-entropy by weighted labels, also over a vocabulary that is cut over tensor-parallel ranks.

Shapes: B batch, T tokens, V vocabulary or a rank's part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F
from torchtitan.components.loss import IGNORE_INDEX, BaseLoss, _LossParallelCrossEntropy
from torchtitan.config import CompileConfig
from torchtitan.distributed.spmd_types import current_spmd_mesh, spmd_mesh_size

from .objective import decode


def weighted_cross_entropy(
    logits_BTV: torch.Tensor,
    label_BT: torch.Tensor,
    *,
    excluded: int | None = None,
    global_vocab_size: int | None = None,
) -> torch.Tensor:
    """The sum over labels of weight times cross-entropy.

    Args:
        excluded: a token that is kept out of the softmax.
        global_vocab_size: of the whole vocabulary, needed where the logits are a part of it.
    """
    token_BT, weight_BT = decode(label_BT)
    logits, tokens = logits_BTV.flatten(0, 1).float(), token_BT.flatten()
    mesh = current_spmd_mesh()
    if mesh is not None and spmd_mesh_size("tp") > 1:
        if global_vocab_size is None:
            raise ValueError("logits over a part of the vocabulary need `global_vocab_size`")
        # each rank but the last has as many tokens as torchtitan's own loss says
        first = mesh.get_local_rank("tp") * -(-global_vocab_size // mesh["tp"].size())
        logits = without(logits, excluded, first)
        losses = _LossParallelCrossEntropy.apply(logits, tokens, mesh.get_group("tp"), global_vocab_size, "none")
    else:
        logits = without(logits, excluded, 0)
        losses = F.cross_entropy(logits, tokens, reduction="none", ignore_index=IGNORE_INDEX)
    return (losses * weight_BT.flatten().to(losses.dtype)).sum()


def without(logits: torch.Tensor, token: int | None, first: int) -> torch.Tensor:
    """The logits with that of a token at -inf; `first` is the token of their first column."""
    if token is None:
        return logits
    columns = torch.arange(logits.size(-1), device=logits.device) + first
    return logits.masked_fill(columns == token, -torch.inf)


class WeightedCrossEntropyLoss(BaseLoss):
    """torchtitan's cross-entropy loss for labels that carry weights."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseLoss.Config):
        """What the softmax is over."""

        excluded: int | None = None
        """A token that is kept out of the softmax: the mask token, which no row predicts."""

        global_vocab_size: int | None = None
        """Size of the whole vocabulary, for logits that are cut over it."""

    def __init__(self, config: Config, *, compile_config: CompileConfig | None = None) -> None:
        self.fn = weighted_cross_entropy
        self._maybe_compile(compile_config)
        self._config = config

    def __call__(
        self,
        pred: torch.Tensor,
        labels: torch.Tensor,
        global_valid_tokens: torch.Tensor | None = None,
        **options: Any,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """(this rank's sum over the number of labels of all ranks, no metrics)."""
        loss = self.fn(pred, labels, excluded=self._config.excluded, global_vocab_size=self._config.global_vocab_size)
        return (loss if global_valid_tokens is None else loss / global_valid_tokens), {}
