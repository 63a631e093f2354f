"""Kernels over runs of keys: each is plain masked softmax, and its terms are autograd's gradients."""

import pytest
import torch
from meshlang_strategies import block_kernels_ops
from meshlang_strategies.block_kernels_ops import KERNELS, Seen, kernel_for, merge, tiles
from meshlang_strategies.softmax_ops import finite
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

BATCH, HEADS, KV_HEADS, HEAD_DIM = 2, 4, 2, 16


def seen(queries: int, keys: int, *, documents: bool) -> Seen:
    """Runs of block-causal queries, some of which see nothing."""
    low = torch.zeros(1, queries, dtype=torch.int64)
    high = (torch.arange(queries) // 16 * 16)[None].clamp(max=keys)
    if documents:
        low, high = low.repeat(BATCH, 1), high.repeat(BATCH, 1)
        low[1, 40:] = 37
    return Seen(low=low, high=torch.maximum(low, high), cuts=(0, 48))


def made(queries: int, keys: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """q, k, v and the output's gradient."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((HEADS, queries), (KV_HEADS, keys), (KV_HEADS, keys), (HEADS, queries))
    return [torch.randn(BATCH, n, t, HEAD_DIM, generator=generator, dtype=torch.float64).to(dtype) for n, t in shapes]


def dense(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Masked softmax, 0 for a query that sees nothing."""
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    scores = (q @ k.transpose(-1, -2) * HEAD_DIM**-0.5).masked_fill(~mask, -torch.inf)
    return scores.softmax(-1).nan_to_num(0.0) @ v


@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-13), (torch.float32, 5e-6), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("name", ["flash", "reference"])
def test_kernel_is_masked_softmax(name: str, dtype: torch.dtype, bound: float, documents: bool) -> None:
    """The output, and the terms of gradients where these keys are all keys."""
    q, k, v, grad = made(600, 500, dtype)
    runs = seen(600, 500, documents=documents)
    out, lse = KERNELS[name].attend(q, k, v, runs)
    wide = [x.double().clone().requires_grad_() for x in (q, k, v)]
    want = dense(*wide, runs.mask(slice(0, 600), slice(0, 500)))
    found = [out, *KERNELS[name].terms(q, k, v, runs, (out, finite(lse), grad))]
    known = [want.detach(), *_gradients(want, wide, grad)]
    for mine, theirs in zip(found, known, strict=True):
        assert float((mine.double() - theirs).abs().max() / theirs.abs().max()) <= bound


def _gradients(out: torch.Tensor, inputs: list[torch.Tensor], grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows = (out.detach() != 0).any(-1, keepdim=True)  # a row that sees nothing has no gradient, and autograd's is nan
    gradients = torch.autograd.grad(out, inputs, torch.where(rows, grad.double(), 0.0))
    return tuple(x.nan_to_num(0.0) for x in gradients)


def test_parts_merge_to_the_whole() -> None:
    """Attention to two parts of the keys, merged, is that to all of them."""
    q, k, v, _ = made(200, 160, torch.float64)
    runs, kernel = seen(200, 160, documents=True), KERNELS["flash"]
    out, lse = kernel.attend(q, k, v, runs)
    cut = [Seen(low=(runs.low - a).clamp(0), high=(runs.high - a).clamp(0, 80)) for a in (0, 80)]
    first, first_lse = kernel.attend(q, k[:, :, :80], v[:, :, :80], cut[0])
    merge(first, first_lse, *kernel.attend(q, k[:, :, 80:], v[:, :, 80:], cut[1]))
    assert torch.allclose(first, out, atol=1e-14)
    assert torch.allclose(first_lse, lse, atol=1e-13)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_sees_the_same_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """FlexAttention's forward, uncompiled, under the same runs; its backward needs a GPU."""
    monkeypatch.setattr(block_kernels_ops, "_compiled", lambda: flex_attention)
    monkeypatch.setattr(block_kernels_ops, "_compiled_mask", lambda: create_block_mask)
    q, k, v, _ = made(96, 80, torch.float32)
    runs = seen(96, 80, documents=True)
    out, lse = KERNELS["flex"].attend(q, k, v, runs)
    want, want_lse = KERNELS["reference"].attend(q, k, v, runs)
    assert torch.allclose(out, want, atol=1e-5)
    assert torch.allclose(lse, want_lse, atol=1e-5)


def test_unseen_keys_are_not_computed_on() -> None:
    """Tiles cover what is seen, and no more than half of a causal square's keys but for the diagonal."""
    runs = seen(1024, 1024, documents=False)
    area = sum((rows.stop - rows.start) * (columns.stop - columns.start) for rows, columns, _ in tiles(runs, 1024))
    assert int((runs.high - runs.low).sum()) <= area <= 1024 * 1024 * 0.65


def test_device_has_its_kernel() -> None:
    """Flash on a CPU, flex on a GPU, and a named one anywhere."""
    assert kernel_for("auto", torch.device("cpu")) is KERNELS["flash"]
    assert kernel_for("auto", torch.device("cuda")) is KERNELS["flex"]
    assert kernel_for("reference", torch.device("cuda")) is KERNELS["reference"]
