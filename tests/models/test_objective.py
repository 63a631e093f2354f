"""Views, labels and the loss, against straightforward references."""

from math import log

import pytest
import torch
from meshlang_models.block_diffusion.corrupt import Noise, draw
from meshlang_models.block_diffusion.loss import WeightedCrossEntropyLoss, weighted_cross_entropy
from meshlang_models.block_diffusion.objective import Sample, complementary, decode, encode, masked
from torchtitan.components.loss import IGNORE_INDEX

from meshlang.testing.exact import keep_float64

MASK, VOCAB = 9, 12


def sample_of(length: int = 24, seed: int = 0) -> Sample:
    """Tokens 0 to 8, some of them not eligible, in two documents."""
    generator = torch.Generator().manual_seed(seed)
    return Sample(
        clean=torch.randint(0, 9, (length,), generator=generator),
        eligible=torch.rand(length, generator=generator) < 0.8,
        document=(torch.arange(length) >= 10).long(),
    )


def logits_of(length: int = 24) -> torch.Tensor:
    """Scores of a batch of one, float64, that ask for a gradient."""
    drawn = torch.randn(1, length, VOCAB, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return drawn.requires_grad_()


def log_chance(row: torch.Tensor, token: int, excluded: int | None) -> torch.Tensor:
    """log softmax(row)[token] by its definition, without one token."""
    kept = [row[i] for i in range(VOCAB) if i != excluded]
    return row[token] - torch.stack(kept).exp().sum().log()


def masked_loss(logits: torch.Tensor, sample: Sample, noise: Noise) -> torch.Tensor:
    """sum over corrupted eligible tokens of -log p / t, over the number of eligible tokens."""
    total = torch.zeros((), dtype=torch.float64)
    for i, clean in enumerate(sample.clean.tolist()):
        if sample.eligible[i] and noise.uniform[i] < noise.level[i]:
            weight = float((1 / noise.level[i]).to(torch.float32))  # a label's weight is a float32
            total = total - log_chance(logits[0, i], clean, MASK) * weight
    return total / int(sample.eligible.sum())


def shifted_loss(logits: list[torch.Tensor], sample: Sample, noise: Noise) -> torch.Tensor:
    """mean over tokens with one before them of -log p(token | the row before), in the view where it is corrupted."""
    total, count = torch.zeros((), dtype=torch.float64), 0
    for i in range(1, len(sample.clean)):
        if sample.eligible[i] and sample.document[i] == sample.document[i - 1]:
            view = 0 if noise.uniform[i] < noise.level[i] else 1
            total = total - log_chance(logits[view][0, i - 1], int(sample.clean[i]), None)
            count += 1
    return total / count


def same(found: torch.Tensor, wanted: torch.Tensor, inputs: list[torch.Tensor]) -> None:
    """Two losses and their gradients are equal to the last digits."""
    assert (found - wanted).detach().abs() <= 1e-12 * wanted.detach().abs()
    pairs = zip(torch.autograd.grad(found, inputs), torch.autograd.grad(wanted, inputs), strict=True)
    assert all((a - b).abs().max() <= 1e-12 * b.abs().max() for a, b in pairs)


@pytest.mark.parametrize("seed", range(3))
def test_masked_loss_is_its_definition(seed: int) -> None:
    """Weight 1 / t, over eligible tokens, mask token out of the softmax: loss and gradient, in float64."""
    sample, noise, logits = sample_of(seed=seed), draw(seed, 24, 4), logits_of()
    (view,) = masked(sample, noise, MASK)
    labels = view.labels[None]
    with keep_float64():
        loss = WeightedCrossEntropyLoss.Config(excluded=MASK).build()
        found, _ = loss(logits, labels, (labels != IGNORE_INDEX).sum())
    same(found, masked_loss(logits, sample, noise), [logits])


@pytest.mark.parametrize("seed", range(3))
def test_complementary_loss_is_its_definition(seed: int) -> None:
    """Shifted labels over two views, weight 1, over valid tokens: loss and gradient, in float64."""
    sample, noise, logits = sample_of(seed=seed), draw(seed, 24, 4), [logits_of(), logits_of() * 2]
    labels = torch.stack([view.labels for view in complementary(sample, noise, MASK)])
    with keep_float64():
        loss = WeightedCrossEntropyLoss.Config().build()
        found, _ = loss(torch.cat(logits), labels, (labels != IGNORE_INDEX).sum())
    same(found, shifted_loss(logits, sample, noise), logits)


def test_masked_view_hides_what_it_scores() -> None:
    """A token is the mask token just where its label has a weight; the others are shown."""
    sample, noise = sample_of(), draw(1, 24, 4)
    (view,) = masked(sample, noise, MASK)
    tokens, weights = decode(view.labels)
    assert torch.equal(view.tokens == MASK, weights > 0)
    assert torch.equal(torch.where(view.tokens == MASK, sample.clean, view.tokens), sample.clean)
    assert torch.equal(tokens != IGNORE_INDEX, sample.eligible)


def test_complementary_views_hide_opposites() -> None:
    """Each eligible token is hidden in one of the views; the others in neither."""
    sample = sample_of()
    one, other = complementary(sample, draw(1, 24, 4), MASK)
    assert torch.equal((one.tokens == MASK) ^ (other.tokens == MASK), sample.eligible)
    assert not ((one.tokens == MASK) & (other.tokens == MASK)).any()


def test_each_valid_token_is_scored_once() -> None:
    """Over both views every eligible token with one before it in its document is scored once, as token i + 1."""
    sample = sample_of(64, seed=2)
    views = complementary(sample, draw(1, 64, 8), MASK)
    scored = torch.stack([view.labels != IGNORE_INDEX for view in views]).sum(0)
    valid = sample.eligible & (sample.document == sample.document.roll(1))
    valid[0] = False
    assert torch.equal(scored, valid.roll(-1).long())
    for view in views:
        rows = (view.labels != IGNORE_INDEX).nonzero()[:, 0]
        assert torch.equal(decode(view.labels)[0][rows], sample.clean[rows + 1])
        assert (view.tokens[rows + 1] == MASK).all()


@pytest.mark.parametrize("weight", [0.0, 1.0, 1000.0, 1 / 3, log(2)])
def test_label_keeps_token_and_weight(weight: float) -> None:
    """decode(encode(tokens, weights)) is both, bit for bit; a label is never IGNORE_INDEX by chance."""
    tokens, weights = torch.tensor([0, 5, 2**31 - 1]), torch.full((3,), weight)
    labels = encode(tokens, weights)
    assert (labels >= 0).all()
    found = decode(labels)
    assert torch.equal(found[0], tokens)
    assert torch.equal(found[1], weights)


def test_label_without_a_score_has_no_gradient() -> None:
    """Ignored labels, and labels of weight 0, give neither loss nor gradient."""
    logits = logits_of(2)
    labels = torch.tensor([[IGNORE_INDEX, 4]])
    loss = weighted_cross_entropy(logits, labels, excluded=MASK)
    assert float(loss.detach()) == 0
    assert torch.equal(torch.autograd.grad(loss, logits)[0], torch.zeros_like(logits))
