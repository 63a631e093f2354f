"""Local text as packed training samples, the same samples for any number of ranks.

The documents lie one after the other in one endless stream of (input, label) pairs: a
document of n tokens gives n - 1 pairs, so that no label crosses into the next document,
and after the last document comes the first again. Sample s is the pairs from s * T to
(s + 1) * T, T tokens long. Nothing of this depends on ranks.

Shapes: B batch, T tokens.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.tokenizer import BaseTokenizer

from .files import digest, find_files


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One sequence: each tensor is (T,), int64."""

    input_T: torch.Tensor
    label_T: torch.Tensor
    position_T: torch.Tensor


class TokenStream:
    """The endless stream of pairs, read by place; documents are encoded when first reached."""

    def __init__(self, files: tuple[Path, ...], tokenizer: BaseTokenizer) -> None:
        self._files = files
        self._tokenizer = tokenizer
        self._starts = [0]
        self._last: tuple[int, torch.Tensor] = (-1, torch.empty(0, dtype=torch.int64))

    def sample(self, index: int, length: int) -> Sample:
        """Sample `index` of `length` tokens; positions restart at 0 with each document.

        A document cut by the sample's start counts from 0 there, so that no position
        reaches `length`.
        """
        inputs: list[torch.Tensor] = []
        labels: list[torch.Tensor] = []
        positions: list[torch.Tensor] = []
        place, missing = index * length, length
        while missing:
            document, offset = self._find(place)
            tokens = self._tokens(document)
            taken = min(missing, len(tokens) - 1 - offset)
            inputs.append(tokens[offset : offset + taken])
            labels.append(tokens[offset + 1 : offset + taken + 1])
            positions.append(torch.arange(taken))
            place, missing = place + taken, missing - taken
        return Sample(input_T=torch.cat(inputs), label_T=torch.cat(labels), position_T=torch.cat(positions))

    def _find(self, place: int) -> tuple[int, int]:
        """The document that holds a place, and the place's offset in it."""
        while place >= self._starts[-1] and len(self._starts) <= len(self._files):
            tokens = self._tokens(len(self._starts) - 1)
            self._starts.append(self._starts[-1] + max(len(tokens) - 1, 0))
        if not self._starts[-1]:
            raise ValueError(f"the {len(self._files)} files hold no two tokens in a row")
        if place >= self._starts[-1]:
            place %= self._starts[-1]
        document = bisect_right(self._starts, place) - 1
        return document, place - self._starts[document]

    def _tokens(self, document: int) -> torch.Tensor:
        if self._last[0] != document:
            text = self._files[document].read_bytes().decode("utf-8", errors="replace")
            ids = self._tokenizer.encode(text, add_bos=True, add_eos=True)
            self._last = (document, torch.tensor(ids, dtype=torch.int64))
        return self._last[1]


class LocalTextDataLoader(BaseDataLoader):
    """Batches of packed samples, without end.

    From a fresh start, rank r of dp takes the samples s with s % dp == r, in order. A step
    whose ranks take n samples each therefore uses samples k * n * dp to (k + 1) * n * dp:
    global batch k is the same set for every dp, and for every split into microbatches.

    The state is the global index of the next sample, the same number on every rank. Any dp
    can resume from it: rank r goes on with the samples next + r, next + r + dp, and so on.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """Where the text is."""

        path: str = ""
        """A folder or a file; "" is the source of the Python standard library."""

        glob: tuple[str, ...] = ()
        """Shell patterns of file names or of paths below the folder; none means *.py, *.md, *.txt."""

    def __init__(
        self,
        config: Config,
        *,
        dp_world_size: int,
        dp_rank: int,
        tokenizer: BaseTokenizer,
        seq_len: int,
        local_batch_size: int,
        **options: Any,
    ) -> None:
        if config.dataset or config.dataset_path:
            raise ValueError("local text is found by `path` and `glob`; leave `dataset` and `dataset_path` unset")
        files = find_files(config.path, tuple(config.glob))
        self._digest = digest(files)
        self._stream = TokenStream(files, tokenizer)
        self._ranks = dp_world_size
        self._rank = dp_rank
        self._length = seq_len
        self._batch = local_batch_size
        self._next = 0

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        """Batches from the current position on: input and positions (B, T), labels (B, T)."""
        while True:
            first = self._next + self._rank
            indices = range(first, first + self._batch * self._ranks, self._ranks)
            samples = [self._stream.sample(index, self._length) for index in indices]
            self._next += self._batch * self._ranks
            input_BT = torch.stack([sample.input_T for sample in samples])
            position_BT = torch.stack([sample.position_T for sample in samples])
            label_BT = torch.stack([sample.label_T for sample in samples])
            yield {"input": input_BT, "positions": position_BT}, label_BT

    def state_dict(self) -> dict[str, Any]:
        """The next sample's global index, its length, and which files it is counted in."""
        return {"next_sample": self._next, "seq_len": self._length, "files": self._digest}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on at the saved sample, with any number of ranks.

        Raises:
            ValueError: the files or the sequence length differ from the saved run's.
        """
        if not state_dict:
            return
        if state_dict["files"] != self._digest:
            raise ValueError("the text files differ from those of the saved run: a sample index means other text here")
        if state_dict["seq_len"] != self._length:
            raise ValueError(
                f"samples of {state_dict['seq_len']} tokens were saved, but this run's are of {self._length}"
            )
        self._next = int(state_dict["next_sample"])
