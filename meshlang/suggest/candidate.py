"""One way to spread a run: the numbers that a spec is written from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: What is cut at rest: nothing; all state, whose weights are freed after each forward, or kept for the backward.
Store = Literal["none", "free", "keep"]


@dataclass(frozen=True, kw_only=True, order=True)
class Cut:
    """How one copy of the model's layers is cut: all that a layer's own plan depends on.

    Attributes:
        tp: ranks that cut weights; `sequence`: they cut the sequence too, between the modules that need it whole.
        cp: ranks that cut each sequence, by the strategy `exchange`; that of a model over two streams is `csbp`.
        context: ranks of `cp` that share one clean stream, of `block_size` tokens a block.
    """

    tp: int = 1
    sequence: bool = False
    cp: int = 1
    exchange: str = ""
    context: int = 1
    block_size: int = 0

    @property
    def axis(self) -> str:
        """The axis that cuts each sequence."""
        return "block" if self.exchange == "csbp" else "cp"


@dataclass(frozen=True, kw_only=True, order=True)
class Candidate:
    """A cut, copies of it, stages, and in which parts a step's sequences go through.

    Attributes:
        dp: ranks that share the sequences of a step, and the state where it is stored; `copies` of all these.
        pp: ranks along the pipeline, of `chunks` stages each, in the order of `schedule`.
        passes: parts of a rank's sequences: forward-backwards one after the other, or microbatches of a pipeline.
        subsequences: of each sequence.
    """

    cut: Cut
    dp: int = 1
    copies: int = 1
    store: Store = "none"
    pp: int = 1
    schedule: str = ""
    chunks: int = 1
    subsequences: int = 1
    passes: int = 1
    recompute: bool = False

    @property
    def ranks(self) -> int:
        """Of the whole mesh."""
        return self.pp * self.copies * self.dp * self.cut.cp * self.cut.tp

    @property
    def data(self) -> int:
        """Ranks that the batch is cut over."""
        return self.copies * self.dp

    @property
    def mesh(self) -> dict[str, int]:
        """Axes, outermost first; those of one rank are left out, unless nothing else is there."""
        axes = {
            "pp": self.pp,
            "copies": self.copies,
            "dp": self.dp,
            self.cut.axis: self.cut.cp,
            "tp": self.cut.tp,
        }
        kept = {name: size for name, size in axes.items() if size > 1 or (name == "block" and self.cut.block_size)}
        return kept if kept and self.ranks > 1 else {"dp": 1, **kept}
