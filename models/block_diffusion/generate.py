"""Text from a trained model: block by block, each denoised in several steps.

    python -m meshlang_models.block_diffusion.generate CHECKPOINT --prompt "def "

A block begins as mask tokens. In each step the model sees it between nothing but the clean tokens
before it, whose keys and values are kept, and itself; the tokens that it is surest of, or the first, are filled in.
A finished block runs once more as clean tokens, which adds its keys and values to the kept ones. So
a row sees just what it saw in training (`masks.py`).

Shapes: B batch, K tokens of a block, S tokens so far, N heads, H head dim, V vocabulary.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch.nn import functional as F
from torchtitan.protocols.module import Module

from ..data import ByteTokenizer
from .model import FLAVORS, BlockDiffusion, block_diffusion_config
from .weights import Saved, flavor_of, read


class CachedAttention(Module):
    """Attention of the rows of one block to the kept ones and to each other."""

    @dataclass(kw_only=True, slots=True)
    class Config(Module.Config):
        """No fields."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.kept: tuple[torch.Tensor, torch.Tensor] | None = None
        self.latest: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(
        self,
        q_BKNH: torch.Tensor,
        k_BKNH: torch.Tensor,
        v_BKNH: torch.Tensor,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
        **options: Any,
    ) -> torch.Tensor:
        """Attention output, (B, K, N, H). Nothing is masked: what a row must not see is not there."""
        self.latest = k_BKNH, v_BKNH
        if self.kept is not None:
            k_BSNH, v_BSNH = (torch.cat(pair, dim=1) for pair in zip(self.kept, self.latest, strict=True))
            self.latest = k_BSNH, v_BSNH
        q, k, v = (x.transpose(1, 2) for x in (q_BKNH, *self.latest))
        return F.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=enable_gqa).transpose(1, 2)


Order = Literal["first", "surest"]


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How text is made.

    Attributes:
        steps: denoising steps a block, at most one for each of its tokens.
        temperature: 0 takes the likeliest token; 1 draws from the model's own distribution.
        order: which tokens of a block are filled in first: those that the model is surest of, or the first ones.
            A model that was trained for minutes is surest of blanks, and of the more the more there are.
        shifted: row i predicts token i + 1, as the complementary objective trains.
        seed: of what is drawn.
    """

    mask_id: int
    block_size: int = 16
    steps: int = 8
    temperature: float = 0.0
    order: Order = "surest"
    shifted: bool = False
    seed: int = 0


class Decoder:
    """A model and the clean prefix that it keeps."""

    def __init__(self, model: BlockDiffusion, how: Decoding) -> None:
        """Args: model: built from a `decoding_config`."""
        self._model = model
        self._how = how
        self._attention = [part for part in model.modules() if isinstance(part, CachedAttention)]
        self._device = next(model.parameters()).device
        self._generator = torch.Generator(device=self._device).manual_seed(how.seed)
        self._place = 0
        self._before_BV: torch.Tensor | None = None

    @torch.no_grad()
    def logits(self, tokens_BK: torch.Tensor) -> torch.Tensor:
        """What the model says of each token of the next block, (B, K, V), without the mask token.

        Of the first token of all nothing is known where predictions are shifted: its row is zeros.
        """
        rows_BKV = self._rows(tokens_BK)
        if self._how.shifted:
            first_BV = torch.zeros_like(rows_BKV[:, 0]) if self._before_BV is None else self._before_BV
            rows_BKV = torch.cat([first_BV[:, None], rows_BKV[:, :-1]], dim=1)
        rows_BKV[..., self._how.mask_id] = -torch.inf
        return rows_BKV

    @torch.no_grad()
    def keep(self, tokens_BK: torch.Tensor) -> None:
        """The next block is these clean tokens; what comes after it sees them."""
        self._before_BV = self._rows(tokens_BK)[:, -1]
        for attention in self._attention:
            attention.kept = attention.latest
        self._place += tokens_BK.size(1)

    def denoise(self, tokens_BK: torch.Tensor) -> torch.Tensor:
        """The next block with its mask tokens replaced; the others stay."""
        tokens_BK = tokens_BK.clone()
        for left in range(self._how.steps, 0, -1):
            hidden_BK = tokens_BK == self._how.mask_id
            if not hidden_BK.any():
                break
            drawn_BK, sure_BK = self._draw(self.logits(tokens_BK))
            if self._how.order == "first":
                sure_BK = torch.arange(sure_BK.size(1), 0, -1, device=self._device).expand_as(sure_BK).to(sure_BK.dtype)
            fill_BK = surest(sure_BK, hidden_BK, -(-hidden_BK.sum(1) // left))
            tokens_BK = torch.where(fill_BK, drawn_BK, tokens_BK)
        return tokens_BK

    def _rows(self, tokens_BK: torch.Tensor) -> torch.Tensor:
        batch, count = tokens_BK.shape
        positions = torch.arange(self._place, self._place + count, device=self._device).expand(batch, -1)
        return self._model(tokens_BK, positions)

    def _draw(self, logits_BKV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(a token for each row, its probability)."""
        if self._how.temperature == 0:
            sure_BK, drawn_BK = logits_BKV.softmax(-1).max(-1)
            return drawn_BK, sure_BK
        chances = (logits_BKV / self._how.temperature).softmax(-1)
        flat = torch.multinomial(chances.flatten(0, 1), 1, generator=self._generator)
        drawn_BK = flat.view(logits_BKV.shape[:2])
        return drawn_BK, chances.gather(-1, drawn_BK[..., None])[..., 0]


def surest(sure_BK: torch.Tensor, hidden_BK: torch.Tensor, count_B: torch.Tensor) -> torch.Tensor:
    """Which of the hidden tokens are filled in: the `count` of each row that the model is surest of, (B, K)."""
    order = sure_BK.masked_fill(~hidden_BK, -1.0).argsort(dim=1, descending=True, stable=True)
    rank = order.argsort(dim=1)
    return hidden_BK & (rank < count_B[:, None])


def generate(model: BlockDiffusion, prompt: list[int], length: int, how: Decoding) -> Iterator[list[int]]:
    """The tokens after a prompt, a block at a time, up to `length` of them; the last block is cut.

    A prompt that ends inside a block is continued there.
    """
    decoder, size = Decoder(model, how), how.block_size
    device = next(model.parameters()).device
    for start in range(0, len(prompt) + length, size):
        given = prompt[start : start + size]
        block = torch.tensor([given + [how.mask_id] * (size - len(given))], device=device)
        block = decoder.denoise(block)
        decoder.keep(block)
        made = block[0, len(given) : len(prompt) + length - start].tolist()
        if made:
            yield made


def decoding_config(config: BlockDiffusion.Config, length: int) -> BlockDiffusion.Config:
    """The config of the model that decodes up to `length` tokens: the same, with attention that keeps a prefix."""
    layers = []
    for layer in config.layers:
        rope = replace(layer.attention.rope, max_seq_len=length)
        attention = replace(layer.attention, inner_attention=CachedAttention.Config(), rope=rope)
        layers.append(replace(layer, attention=attention))
    return replace(config, layers=layers)


def load(saved: Saved, length: int) -> BlockDiffusion:
    """The model of a checkpoint, in float32, for texts of up to `length` tokens."""
    config = decoding_config(block_diffusion_config(FLAVORS[flavor_of(saved.weights)]), length)
    model = config.build()
    with torch.no_grad():
        model.init_weights(buffer_device=None)
    model.load_state_dict({name: weight.float() for name, weight in saved.weights.items()})
    return model.eval()


def decoding(saved: Saved, given: argparse.Namespace, mask_id: int) -> Decoding:
    """How to decode: as the run that saved the checkpoint was trained, where the command does not say.

    Raises:
        ValueError: neither says.
    """
    block_size = given.block_size or saved.facts.get("block_size")
    objective = given.objective or saved.facts.get("objective")
    if block_size is None or objective is None:
        raise ValueError("the checkpoint holds weights alone: say --block-size and --objective")
    return Decoding(
        mask_id=mask_id,
        block_size=int(block_size),
        steps=given.steps,
        temperature=given.temperature,
        order=given.order,
        shifted=objective == "complementary",
        seed=given.seed,
    )


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    found = argparse.ArgumentParser(prog="generate", description="Continue a prompt, block by block.")
    found.add_argument("checkpoint", help="a checkpoint of a block-diffusion run, or the folder of its checkpoints")
    found.add_argument("--prompt", default="", help="what the text begins with")
    found.add_argument("--length", type=int, default=192, help="tokens to add")
    found.add_argument("--steps", type=int, default=16, help="denoising steps a block")
    found.add_argument("--temperature", type=float, default=0.7, help="0 takes the likeliest token, 1 draws as it is")
    found.add_argument("--order", choices=["first", "surest"], default="first", help="which tokens are filled in first")
    found.add_argument("--seed", type=int, default=0, help="of what is drawn")
    found.add_argument("--block-size", type=int, help="tokens denoised together, where the checkpoint does not say")
    found.add_argument("--objective", choices=["masked", "complementary"], help="where the checkpoint does not say")
    return found


def main(arguments: list[str] | None = None) -> int:
    """The command: the prompt and its continuation on stdout; 2 with what is wrong on stderr."""
    given = parser().parse_args(arguments)
    tokenizer = ByteTokenizer()
    prompt = tokenizer.encode(given.prompt, add_bos=True)
    try:
        saved = read(given.checkpoint)
        how = decoding(saved, given, tokenizer.mask_id)
        model = load(saved, len(prompt) + given.length + how.block_size)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    made: list[int] = []
    for block in generate(model, prompt, given.length, how):
        made += block
        if tokenizer.eos_id in made:
            made = made[: made.index(tokenizer.eos_id)]
            break
    print(tokenizer.decode(prompt + made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
