"""The block-diffusion decoder: its two streams, its Llama, and that what is generated is what was trained."""

import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from meshlang_models.block_diffusion import BlockDiffusion, block_diffusion_config, debug, tiny, tiny_shared
from meshlang_models.block_diffusion.generate import Decoder, Decoding, decoding_config, generate, surest
from meshlang_models.block_diffusion.loss import WeightedCrossEntropyLoss
from meshlang_models.block_diffusion.objective import encode
from meshlang_models.llama import Llama, Sizes, llama_config
from torch import nn
from torchtitan.config import TORCH_DTYPE_MAP
from torchtitan.protocols.module import Module
from torchtitan.tools.utils import set_default_dtype

from meshlang.runtime import device
from meshlang.runtime.attention import swap_inner_attention
from meshlang.testing.exact import keep_float64, seeded_init

SIZES = Sizes(layers=2, embed=32, heads=4, kv_heads=2, mlp=48, vocab=40, max_seq=64)
MASK, SIZE, LENGTH = 39, 4, 24


@pytest.fixture(autouse=True)
def _exact() -> Iterator[None]:
    """Everything in float64 on a CPU."""
    device.prepare("cpu")
    with keep_float64(), set_default_dtype(TORCH_DTYPE_MAP["float64"]):
        yield


def built(config: Any) -> Any:
    """The model of a config with the weights that its parameters' names give."""
    swap_inner_attention(config)
    model: nn.Module = config.build()
    with torch.no_grad():
        model.init_weights(buffer_device=None)  # pyright: ignore[reportCallIssue]
    seeded_init(model)
    return model


def trained(**fields: Any) -> BlockDiffusion:
    """The model as it trains."""
    return built(replace(block_diffusion_config(SIZES), **{"block_size": SIZE, **fields}))


def tokens_of(seed: int, length: int = LENGTH) -> torch.Tensor:
    """Two sequences of tokens, none of them the mask token."""
    return torch.randint(0, MASK, (2, length), generator=torch.Generator().manual_seed(seed))


def hidden_of(seed: int, length: int = LENGTH) -> torch.Tensor:
    """Which tokens are corrupted."""
    return torch.rand(2, length, generator=torch.Generator().manual_seed(seed)) < 0.5


def forward(model: BlockDiffusion, tokens: torch.Tensor, clean: torch.Tensor) -> torch.Tensor:
    """Logits of the corrupted rows of one-document sequences."""
    place = torch.arange(clean.size(1)).repeat(2, 1)
    views = tokens.size(1) // clean.size(1)
    positions = place.repeat(1, views)
    return model(tokens, positions, model.get_attention_masks(positions), clean=clean, clean_positions=place)


def test_parameters_are_a_llama_s() -> None:
    """Names and shapes are those of models/llama, and so is every value that its state gives."""
    llama, ours = built(llama_config(SIZES)), built(block_diffusion_config(SIZES))
    theirs = {name: tuple(p.shape) for name, p in llama.named_parameters()}
    assert {name: tuple(p.shape) for name, p in ours.named_parameters()} == theirs
    ours.load_state_dict(llama.state_dict())


def test_forwards_take_a_llama_s_arguments_by_place() -> None:
    """What a module takes beyond its counterpart in the Llama is a keyword: torchtitan looks up all others by name."""
    with torch.device("meta"):
        llama, ours = llama_config(SIZES).build(), block_diffusion_config(SIZES).build()
    theirs = dict(llama.named_modules())
    for name, module in ours.named_modules():
        assert by_place(module) == by_place(theirs[name]), name


def by_place(module: nn.Module) -> list[str]:
    """Arguments of a forward that may be given without their names."""
    parameters = inspect.signature(type(module).forward).parameters.values()
    return [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]


def test_blocks_of_one_token_are_autoregressive() -> None:
    """With blocks of one token and none corrupted, the logits are those of the Llama with the same weights."""
    llama: Llama = built(llama_config(SIZES))
    ours = trained(block_size=1)
    clean, place = tokens_of(0), torch.arange(LENGTH).repeat(2, 1)
    wanted = llama(clean, place, llama.get_attention_masks(place))
    assert (forward(ours, clean, clean) - wanted).abs().max() <= 1e-12 * wanted.abs().max()


def test_block_sees_only_what_it_may() -> None:
    """The logits of a block depend on its own corrupted tokens and on earlier clean ones, and on no others."""
    model, clean = trained(), tokens_of(0)
    tokens = torch.where(hidden_of(1), MASK, clean)
    before = forward(model, tokens, clean)[:, 8:12]
    others = torch.ones(LENGTH, dtype=torch.bool)
    others[8:12] = False
    elsewhere = torch.where(others, tokens_of(2), tokens)
    later = torch.where(torch.arange(LENGTH) >= 8, tokens_of(3), clean)
    assert torch.equal(forward(model, elsewhere, later)[:, 8:12], before)
    earlier = clean.clone()
    earlier[:, 7] = (earlier[:, 7] + 1) % MASK
    assert not torch.equal(forward(model, tokens, earlier)[:, 8:12], before)


def test_two_streams_need_positions() -> None:
    """Rows of two streams without the positions of both are an error: they would be counted through."""
    clean = tokens_of(0)
    with pytest.raises(ValueError, match="two streams need the positions of both"):
        trained()(clean, clean=clean)


def test_shared_clean_tokens_change_nothing() -> None:
    """Two views beside one clean copy have the loss and gradients of two that have a copy each."""
    apart, shared = trained(), trained(views=2)
    clean, hidden = tokens_of(0), hidden_of(1)
    views = [torch.where(hidden, MASK, clean), torch.where(~hidden, MASK, clean)]
    labels = [encode(clean, hidden.to(torch.float32)), encode(clean, (~hidden).to(torch.float32))]
    loss = WeightedCrossEntropyLoss.Config(excluded=MASK).build()
    wanted = sum(loss(forward(apart, *pair), label)[0] for *pair, label in zip(views, [clean] * 2, labels, strict=True))
    found, _ = loss(forward(shared, torch.cat(views, 1), clean), torch.cat(labels, 1))
    assert isinstance(wanted, torch.Tensor)
    assert (found - wanted).detach().abs() <= 1e-12 * wanted.detach().abs()
    found.backward()
    wanted.backward()
    for one, other in zip(shared.parameters(), apart.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert (one.grad - other.grad).abs().max() <= 1e-12 * other.grad.abs().max()


def decoder(shifted: bool = False, **fields: Any) -> Decoder:
    """The decoder of the model, with the same weights."""
    model = built(decoding_config(block_diffusion_config(SIZES), LENGTH))
    return Decoder(model, Decoding(mask_id=MASK, block_size=SIZE, shifted=shifted, **fields))


@pytest.mark.parametrize("block", [0, 1, 3, 5])
def test_generator_sees_what_training_saw(block: int) -> None:
    """After the same clean blocks, the generator's logits of a corrupted block are those of the training forward."""
    clean = tokens_of(0)
    tokens = torch.where(hidden_of(1), MASK, clean)
    wanted = forward(trained(), tokens, clean)
    ours = decoder()
    for start in range(0, block * SIZE, SIZE):
        ours.keep(clean[:, start : start + SIZE])
    found = ours.logits(tokens[:, block * SIZE : (block + 1) * SIZE])
    here = wanted[:, block * SIZE : (block + 1) * SIZE]
    kept = torch.arange(SIZES.vocab) != MASK
    assert (found - here)[..., kept].abs().max() <= 1e-12 * here.abs().max()
    assert (found[..., MASK] == -torch.inf).all()


def test_shifted_generator_sees_what_training_saw() -> None:
    """Where row i predicts token i + 1, a block's first token is predicted by the last row of the block before it."""
    clean = tokens_of(0)
    tokens = torch.where(hidden_of(1), MASK, clean)
    tokens[:, 4:8] = clean[:, 4:8]  # the block before is finished
    wanted = forward(trained(), tokens, clean)[:, 7:11]
    ours = decoder(shifted=True)
    ours.keep(clean[:, :4])
    ours.keep(clean[:, 4:8])
    kept = torch.arange(SIZES.vocab) != MASK
    found = ours.logits(tokens[:, 8:12])
    assert (found - wanted)[..., kept].abs().max() <= 1e-12 * wanted.abs().max()


@pytest.mark.parametrize("prompt", [1, 3, 4, 9])
def test_text_goes_on_from_a_prompt(prompt: int) -> None:
    """Whatever block the prompt ends in, as many tokens follow as were asked for, none of them a mask token."""
    model = built(decoding_config(block_diffusion_config(SIZES), LENGTH))
    given = tokens_of(0)[0, :prompt].tolist()
    how = Decoding(mask_id=MASK, block_size=SIZE, steps=2)
    made = [token for block in generate(model, given, 10, how) for token in block]
    assert len(made) == 10
    assert MASK not in made


def test_seed_decides_what_is_drawn() -> None:
    """With a temperature, the same seed draws the same tokens, another one others."""
    blank = torch.full((2, SIZE), MASK)
    one, again, other = (decoder(temperature=1.0, seed=seed).denoise(blank) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_one_step_fills_all() -> None:
    """In one step every token takes the likeliest of what the model says of the bare mask tokens."""
    blank = torch.full((2, SIZE), MASK)
    assert torch.equal(decoder(steps=1).denoise(blank), decoder().logits(blank).argmax(-1))


def test_surest_tokens_come_first() -> None:
    """Of the hidden tokens the most certain are taken, as many as each row asks for."""
    sure = torch.tensor([[0.9, 0.2, 0.8, 0.5], [0.1, 0.2, 0.3, 0.4]])
    hidden = torch.tensor([[False, True, True, True], [True, True, True, True]])
    wanted = [[False, False, True, True], [False, False, False, True]]
    assert surest(sure, hidden, torch.tensor([2, 1])).tolist() == wanted


def test_first_tokens_come_first() -> None:
    """In the order of the text, each token is the likeliest after those before it, whatever the model is surer of."""
    orders = []
    for seed in range(6):
        first, surest_first = decoder(order="first", steps=SIZE), decoder(steps=SIZE)
        for ours in (first, surest_first):
            ours.keep(tokens_of(seed)[:1, :SIZE])
        block = torch.full((1, SIZE), MASK)
        orders.append((first.denoise(block), surest_first.denoise(block)))
        for place in range(SIZE):
            block[0, place] = first.logits(block)[0, place].argmax()
        assert torch.equal(orders[-1][0], block)
    assert any(not torch.equal(one, other) for one, other in orders)


def test_blocks_are_the_data_s() -> None:
    """A run's model takes block size and views from its data loader."""
    config = tiny_shared()
    config.dataloader.block_size = 32
    assert config.model_spec is not None
    config.model_spec.model.update_from_config(config=config)
    assert (config.model_spec.model.block_size, config.model_spec.model.views) == (32, 2)


def test_uneven_blocks_of_a_run_are_refused() -> None:
    """Sequences that do not divide into blocks are an error with both numbers, before anything is built."""
    config = tiny()
    config.training.seq_len = 100
    assert config.model_spec is not None
    with pytest.raises(ValueError, match="sequences of 100 tokens do not divide into blocks of 16"):
        config.model_spec.model.update_from_config(config=config)


@pytest.mark.parametrize("recipe", [tiny, tiny_shared, debug])
def test_model_sets_no_sharding(recipe: Any) -> None:
    """No module has a sharding config, also after the run's config has been applied."""
    config = recipe()
    config.parallelism.tensor_parallel_degree = 2
    model = config.model_spec.model
    model.update_from_config(config=config)
    parts = list(model.traverse(Module.Config, recurse=True))
    assert len(parts) > 40
    assert all(part.sharding_config is None for _, part, _, _ in parts)
