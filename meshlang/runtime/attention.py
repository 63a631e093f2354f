"""Flex attention with a backward on a CPU.

Shapes: B batch, L tokens of a query or key sequence, N heads, H head dim.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any
from weakref import WeakKeyDictionary

import spmd_types as spmd
import torch
from spmd_types.runtime import get_partition_spec
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, create_mask
from torchtitan.config import Configurable
from torchtitan.models.common.attention import FlexAttention

OutTransform = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_dense_masks: WeakKeyDictionary[BlockMask, torch.Tensor] = WeakKeyDictionary()
"""Memo of `dense_mask`: all layers of a step share one mask object, and so one dense mask."""


class CpuFlexAttention(FlexAttention):
    """FlexAttention computed by SDPA over the dense form of its block mask.

    It is a FlexAttention to every isinstance check of torchtitan, with the same forward
    arguments. `score_mod` and `kernel_options` have no meaning here: the first is refused,
    the second ignored.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(FlexAttention.Config):
        """The fields of FlexAttention.Config, none added."""

    def forward(
        self,
        q_BLNH: torch.Tensor,
        k_BLNH: torch.Tensor,
        v_BLNH: torch.Tensor,
        *,
        attention_masks: BlockMask,
        score_mod: Callable[..., torch.Tensor] | None = None,
        scale: float | None = None,
        enable_gqa: bool = False,
        out_transform: OutTransform | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Attention output of shape (B, L, N, H), heads and tokens as in the query."""
        if score_mod is not None:
            raise NotImplementedError("attention on a CPU has no score_mod")
        q_BNLH, k_BNLH, v_BNLH = (x.transpose(1, 2) for x in (q_BLNH, k_BLNH, v_BLNH))
        with spmd.no_typecheck():
            mask = dense_mask(attention_masks)
            if out_transform is None:
                out_BNLH = attend(q_BNLH, k_BNLH, v_BNLH, mask, scale, enable_gqa)
                lse_BNL = None
            else:
                out_BNLH, lse_BNL = attend_with_lse(q_BNLH, k_BNLH, v_BNLH, mask, scale)
        _type_like(out_BNLH, q_BNLH)
        out_BLNH = out_BNLH.transpose(1, 2)
        if out_transform is None or lse_BNL is None:
            return out_BLNH
        _type_like(lse_BNL, q_BNLH)
        return out_transform(out_BLNH, lse_BNL.transpose(1, 2))


def swap_inner_attention(config: Configurable.Config) -> int:
    """Every FlexAttention.Config below the given one becomes a CpuFlexAttention.Config.

    Fields, sharding config included, keep their values. A config of a FlexAttention
    subclass stays: it brings an attention of its own.

    Returns:
        How many were replaced.
    """
    found = [
        (part, parent, name)
        for _, part, parent, name in config.traverse(FlexAttention.Config)
        if type(part) is FlexAttention.Config
    ]
    for part, parent, name in found:
        values = {field.name: getattr(part, field.name) for field in fields(part)}
        _put(parent, name, CpuFlexAttention.Config(**values))
    return len(found)


def dense_mask(mask: BlockMask) -> torch.Tensor:
    """The block mask as booleans of shape (B or 1, N or 1, L of queries, L of keys)."""
    dense = _dense_masks.get(mask)
    if dense is None:
        batch, heads, queries, keys = mask.shape
        device = mask.kv_num_blocks.device
        dense = create_mask(mask.mask_mod, batch, heads, queries, keys, device=device)
        _dense_masks[mask] = dense
    return dense


def attend(
    q_BNLH: torch.Tensor,
    k_BNLH: torch.Tensor,
    v_BNLH: torch.Tensor,
    mask: torch.Tensor,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Masked attention of shape (B, N, L, H); in float64 by plain matrix products."""
    exact = q_BNLH.dtype == torch.float64
    kernels = [SDPBackend.MATH] if exact else [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(kernels):
        return F.scaled_dot_product_attention(
            q_BNLH, k_BNLH, v_BNLH, attn_mask=mask, scale=scale, enable_gqa=enable_gqa
        )


def attend_with_lse(
    q_BNLH: torch.Tensor,
    k_BNLH: torch.Tensor,
    v_BNLH: torch.Tensor,
    mask: torch.Tensor,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Masked attention, and the log of each query's sum of exponentials, (B, N, L).

    Scores are float32 or wider. A query that sees no key gives zeros and -inf.
    """
    wide = torch.promote_types(q_BNLH.dtype, torch.float32)
    groups = q_BNLH.shape[1] // k_BNLH.shape[1]
    k_BNLH, v_BNLH = (x.repeat_interleave(groups, dim=1) for x in (k_BNLH, v_BNLH))
    scale = 1 / math.sqrt(q_BNLH.shape[-1]) if scale is None else scale
    scores = (q_BNLH.to(wide) @ k_BNLH.to(wide).transpose(-1, -2)) * scale
    scores = scores.masked_fill(~mask, -math.inf)
    lse_BNL = scores.logsumexp(dim=-1)
    shift = torch.where(lse_BNL == -math.inf, 0.0, lse_BNL)
    weights = torch.exp(scores - shift.unsqueeze(-1))
    return (weights @ v_BNLH.to(wide)).to(q_BNLH.dtype), lse_BNL


def _type_like(x: torch.Tensor, q_BNLH: torch.Tensor) -> None:
    """Give `x` the SPMD type of the query: attention keeps its split of B, N and L."""
    if not spmd.is_type_checking():
        return
    spec = get_partition_spec(q_BNLH)
    if spec is not None:
        spec = spmd.PartitionSpec(*spec[: x.ndim])
    spmd.assert_type(x, dict(spmd.get_local_type(q_BNLH)), spec)


def _put(parent: Any, name: str | int | None, value: object) -> None:
    """Set an item of a list or a field of a config."""
    if name is None:
        raise TypeError("a FlexAttention.Config has no parent in which to replace it")
    if isinstance(name, int):
        parent[name] = value
    else:
        setattr(parent, name, value)
