"""Attention on a CPU against a dense reference.

Shapes: B batch, L tokens, N heads, H head dim.
"""

import dataclasses
import gc
import inspect
import math
import weakref

import pytest
import torch
from torch.nn.attention.flex_attention import BlockMask, and_masks, create_block_mask
from torchtitan.models.common.attention import (
    FlexAttention,
    get_causal_mask_mod,
    get_efficient_causal_mask_mod_for_packed_document,
)
from torchtitan.models.llama3 import model_registry
from torchtitan.protocols.sharding import ShardingConfig

from meshlang.runtime.attention import CpuFlexAttention, attend_with_lse, dense_mask, swap_inner_attention

POSITIONS = torch.tensor([[0, 1, 2, 3, 0, 1, 0, 1, 2, 3, 4, 5], [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1]])


def document_mask() -> BlockMask:
    """torchtitan's mask of causal attention within the documents of POSITIONS."""
    mods = and_masks(get_causal_mask_mod(), get_efficient_causal_mask_mod_for_packed_document(POSITIONS))
    batch, length = POSITIONS.shape
    return create_block_mask(mods, batch, None, length, length, device="cpu")


def visible() -> torch.Tensor:
    """The same mask written down: a query sees the earlier keys of its own document."""
    document = torch.cumsum((POSITIONS == 0).int(), dim=1)
    same = document[:, :, None] == document[:, None, :]
    return (same & torch.ones(12, 12).tril().bool()).unsqueeze(1)


def inputs(dtype: torch.dtype = torch.float64, kv_heads: int = 2) -> list[torch.Tensor]:
    """Query, key and value (B, L, N, H), the same at each call."""
    torch.manual_seed(0)
    heads = (4, kv_heads, kv_heads)
    return [torch.randn(2, 12, n, 8, dtype=torch.float64).to(dtype).requires_grad_() for n in heads]


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Output (B, L, N, H) and log of the sum of exponentials (B, L, N), in float64."""
    k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], dim=2) for x in (k, v))
    scores = torch.einsum("blnh,bmnh->bnlm", q, k) * scale
    scores = scores.masked_fill(~visible(), -math.inf)
    out = torch.einsum("bnlm,bmnh->blnh", scores.softmax(dim=-1), v)
    return out, scores.logsumexp(dim=-1).transpose(1, 2)


def build() -> CpuFlexAttention:
    """The module, built as a model builds it."""
    attention = CpuFlexAttention.Config().build()
    assert isinstance(attention, CpuFlexAttention)
    return attention


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("scale", [None, 0.5])
def test_values_and_gradients_equal_dense_attention(kv_heads: int, scale: float | None) -> None:
    """In float64 the output and all gradients equal dense attention within documents."""
    actual, wanted = inputs(kv_heads=kv_heads), inputs(kv_heads=kv_heads)
    out = build()(*actual, attention_masks=document_mask(), scale=scale, enable_gqa=kv_heads < 4)
    expected, _ = reference(*wanted, scale=scale or 8**-0.5)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(out)
    (out * weight).sum().backward()
    (expected * weight).sum().backward()
    for got, want in zip(actual, wanted, strict=True):
        torch.testing.assert_close(got.grad, want.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 2e-6), (torch.bfloat16, 2e-2)])
def test_lower_precisions_stay_near(dtype: torch.dtype, near: float) -> None:
    """In float32 and bfloat16 values and gradients are dense attention's, rounded."""
    actual = inputs(dtype)
    wanted = [x.detach().double().requires_grad_() for x in actual]
    out = build()(*actual, attention_masks=document_mask(), enable_gqa=True)
    expected, _ = reference(*wanted, scale=8**-0.5)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), expected, rtol=near, atol=near)
    out.sum().backward()
    expected.sum().backward()
    for got, want in zip(actual, wanted, strict=True):
        torch.testing.assert_close(got.grad.double(), want.grad, rtol=5 * near, atol=5 * near)


def test_out_transform_gets_the_log_sum() -> None:
    """An output transform receives (B, L, N, H) outputs and (B, L, N) logs, with gradients."""
    actual, wanted = inputs(), inputs()

    def gated(out_BLNH: torch.Tensor, lse_BLN: torch.Tensor) -> torch.Tensor:
        return out_BLNH * torch.sigmoid(lse_BLN).unsqueeze(-1)

    out = build()(*actual, attention_masks=document_mask(), enable_gqa=True, out_transform=gated)
    expected = gated(*reference(*wanted, scale=8**-0.5))
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    out.square().sum().backward()
    expected.square().sum().backward()
    for got, want in zip(actual, wanted, strict=True):
        torch.testing.assert_close(got.grad, want.grad, rtol=1e-12, atol=1e-12)


def test_query_without_keys_gives_zeros() -> None:
    """A query that sees no key gives zeros, a log of -inf, and finite gradients."""
    q, k, v = (x.transpose(1, 2).detach().requires_grad_() for x in inputs(kv_heads=4))
    mask = torch.ones(1, 1, 12, 12, dtype=torch.bool)
    mask[:, :, 3] = False
    out, lse = attend_with_lse(q, k, v, mask)
    assert out[:, :, 3].eq(0).all()
    assert lse[:, :, 3].eq(-math.inf).all()
    out.sum().backward()
    assert q.grad is not None
    assert q.grad.isfinite().all()


def test_layers_share_one_dense_mask() -> None:
    """The dense mask of a mask object is made once, and is the documents' own."""
    mask = document_mask()
    assert dense_mask(mask) is dense_mask(mask)
    assert torch.equal(dense_mask(mask), visible())


def test_dense_mask_goes_with_its_block_mask() -> None:
    """No dense mask outlives the step's mask object."""
    mask = document_mask()
    gone = weakref.ref(dense_mask(mask))
    del mask
    gc.collect()
    assert gone() is None


def test_score_mod_is_refused() -> None:
    """A score modification, which SDPA cannot apply, is an error and not ignored."""
    with pytest.raises(NotImplementedError, match="score_mod"):
        build()(*inputs(), attention_masks=document_mask(), score_mod=lambda s, *_: s)


def test_forward_has_flex_attentions_arguments() -> None:
    """Argument names and order are FlexAttention's, which sharding configs name."""
    ours = inspect.signature(CpuFlexAttention.forward).parameters
    assert list(ours) == list(inspect.signature(FlexAttention.forward).parameters)


def test_swap_replaces_every_flex_attention() -> None:
    """Each layer's config becomes ours, with the values of its fields and its sharding config."""
    config = model_registry("debugmodel").model
    sharding = ShardingConfig()
    for layer in config.layers:
        layer.attention.inner_attention = FlexAttention.Config(block_size=64, sharding_config=sharding)
    assert swap_inner_attention(config) == 6
    for layer in config.layers:
        inner = layer.attention.inner_attention
        assert type(inner) is CpuFlexAttention.Config
        assert (inner.block_size, inner.sharding_config) == (64, sharding)
    assert swap_inner_attention(config) == 0


def test_swap_leaves_other_attentions_alone() -> None:
    """A config of a FlexAttention subclass keeps the attention that it brings."""

    class Own(FlexAttention):
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(FlexAttention.Config):
            pass

    config = model_registry("debugmodel").model
    own = Own.Config()
    config.layers[2].attention.inner_attention = own
    assert swap_inner_attention(config) == 5
    assert config.layers[2].attention.inner_attention is own
