"""Local text as packed training samples, the same samples for any number of ranks.

Documents are dealt in turn to lanes. In a lane they lie one after the other in one endless
stream of (input, label) pairs: a document of n tokens gives n - 1 pairs, so that no label
crosses into the next document, and after the lane's last document comes its first again.
Sample s is the s // lanes-th run of T pairs of lane s % lanes, so that neighbouring samples
come from different documents. Nothing of this depends on ranks.

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

    inputs: torch.Tensor
    labels: torch.Tensor
    positions: torch.Tensor


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
        return Sample(inputs=torch.cat(inputs), labels=torch.cat(labels), positions=torch.cat(positions))

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

        lanes: int = 16
        """How many documents are read side by side, where there are that many."""

        def kept(self) -> dict[str, Any]:
            """What a run that goes on from a checkpoint may not change: its samples would be others.

            Raises:
                ValueError: there is no text.
            """
            files = find_files(self.path, tuple(self.glob))
            return {"files": digest(files), "lanes": min(self.lanes, len(files))}

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
        if config.lanes < 1:
            raise ValueError(f"lanes is {config.lanes}; at least one document must be read")
        files = find_files(config.path, tuple(config.glob))
        self._digest = digest(files)
        self._lanes = min(config.lanes, len(files))
        self._streams = [TokenStream(files[lane :: self._lanes], tokenizer) for lane in range(self._lanes)]
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
            samples = [self._sample(index) for index in indices]
            self._next += self._batch * self._ranks
            input_BT = torch.stack([sample.inputs for sample in samples])
            position_BT = torch.stack([sample.positions for sample in samples])
            label_BT = torch.stack([sample.labels for sample in samples])
            yield {"input": input_BT, "positions": position_BT}, label_BT

    def state_dict(self) -> dict[str, Any]:
        """The next sample's global index, and what decides which text an index means."""
        return {"next_sample": self._next, "seq_len": self._length, "lanes": self._lanes, "files": self._digest}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on at the saved sample, with any number of ranks.

        Raises:
            ValueError: the files, the lanes or the sequence length differ from the saved run's.
        """
        if not state_dict:
            return
        here = self.state_dict()
        for key, what in (("files", "text files"), ("lanes", "lanes"), ("seq_len", "sequence length")):
            if state_dict[key] != here[key]:
                raise ValueError(
                    f"the saved run's {what} ({state_dict[key]}) differ from this run's ({here[key]}): "
                    "a sample index means other text here"
                )
        self._next = int(state_dict["next_sample"])

    def _sample(self, index: int) -> Sample:
        return self._streams[index % self._lanes].sample(index // self._lanes, self._length)
