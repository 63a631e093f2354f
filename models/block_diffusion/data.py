"""Local text, corrupted on the way: the batches that a block-diffusion model trains on.

Shapes: B samples, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.tokenizer import BaseTokenizer

from ..data import LocalTextDataLoader
from .corrupt import draw, sample_seed
from .masks import documents
from .objective import OBJECTIVES, Sample, View

Batch = tuple[dict[str, torch.Tensor], torch.Tensor]


class CorruptedTextDataLoader(BaseDataLoader):
    """Batches of `LocalTextDataLoader` with corrupted views; the samples and the state are its own.

    A batch is a dict and labels. `input` and `positions` are of the corrupted tokens, `clean` and
    `clean_positions` of the clean ones; a row of `labels` belongs to the row of `input` at its place.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(LocalTextDataLoader.Config):
        """Where the text is, and how it is corrupted."""

        block_size: int = 16
        """Tokens that are denoised together; the model takes it from here."""

        objective: Literal["masked", "complementary"] = "masked"
        """What is corrupted and scored; see `objective.py`."""

        share_clean: bool = False
        """All views of a sample beside one clean copy, (B, views * T), not one beside each, (B * views, T)."""

        seed: int = 0
        """With a sample's number it decides the sample's noise."""

        def kept(self) -> dict[str, Any]:
            """What a run that goes on from a checkpoint may not change: its samples would be others."""
            text = LocalTextDataLoader.Config.kept(self)
            return {**text, "block_size": self.block_size, "objective": self.objective, "seed": self.seed}

        @property
        def views(self) -> int:
            """Views beside one clean copy."""
            return OBJECTIVES[self.objective][0] if self.share_clean else 1

    def __init__(self, config: Config, *, tokenizer: BaseTokenizer, **options: Any) -> None:
        mask_id = getattr(tokenizer, "mask_id", None)
        if mask_id is None:
            raise ValueError(f"{type(tokenizer).__name__} has no `mask_id` to corrupt tokens with")
        self._config = config
        self._mask_id = int(mask_id)
        #: A document begins with a token that nobody has to guess.
        self._shown = [self._mask_id, *(i for i in [getattr(tokenizer, "bos_id", None)] if i is not None)]
        self._ranks, self._rank = int(options["dp_world_size"]), int(options["dp_rank"])
        self._text = LocalTextDataLoader(config, tokenizer=tokenizer, **options)

    def __iter__(self) -> Iterator[Batch]:
        """Batches from the current position on."""
        text = iter(self._text)
        while True:
            first = self._text.state_dict()["next_sample"] + self._rank
            batch, _ = next(text)
            yield self._corrupted(batch["input"], batch["positions"], first)

    def state_dict(self) -> dict[str, Any]:
        """That of the text, and what samples are made by, which a reader must know to decode; noise has no state."""
        return {**self._text.state_dict(), **self._config.kept()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on at the saved sample, with any number of ranks.

        Raises:
            ValueError: the saved run made its samples otherwise.
        """
        for name, here in self._config.kept().items():
            if state_dict and state_dict.get(name, here) != here:
                raise ValueError(f"the saved run's {name} ({state_dict[name]}) differs from this run's ({here})")
        self._text.load_state_dict(state_dict)

    def _corrupted(self, clean_BT: torch.Tensor, position_BT: torch.Tensor, first: int) -> Batch:
        """The batch of samples `first`, `first + ranks` and so on."""
        document_BT = documents(position_BT)
        pairs = enumerate(zip(clean_BT, document_BT, strict=True))
        views = [self._views(clean, document, first + b * self._ranks) for b, (clean, document) in pairs]
        count = len(views[0])
        beside, apart = (count, 1) if self._config.share_clean else (1, count)
        batch = {
            "input": torch.stack([torch.stack([view.tokens for view in each]) for each in views]),
            "positions": position_BT[:, None].expand(-1, count, -1),
            "clean": clean_BT.repeat_interleave(apart, dim=0),
            "clean_positions": position_BT.repeat_interleave(apart, dim=0),
        }
        labels = torch.stack([torch.stack([view.labels for view in each]) for each in views])
        shape = (len(views) * apart, beside * clean_BT.size(1))
        for name in ("input", "positions"):
            batch[name] = batch[name].reshape(shape)
        return batch, labels.reshape(shape)

    def _views(self, clean: torch.Tensor, document: torch.Tensor, sample: int) -> tuple[View, ...]:
        noise = draw(sample_seed(self._config.seed, sample), len(clean), self._config.block_size)
        eligible = ~torch.isin(clean, torch.tensor(self._shown))
        _, objective = OBJECTIVES[self._config.objective]
        return objective(Sample(clean=clean, eligible=eligible, document=document), noise, self._mask_id)
