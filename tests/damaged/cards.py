"""Cards without findings, which are damaged, each under an example that uses it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import tomli
from bases import EXAMPLES, PLUGINS

from meshlang.card.find import Cards
from meshlang.compiler import Request
from meshlang.source import Source

#: An example of every card, and of every way to look at one: cut, stored, piped, recomputed.
NAMES = (
    "block_diffusion_cpu",
    "llama_tiny_context_parallel",
    "llama_tiny_pipeline",
    "llama_tiny_recompute",
    "llama_tiny_sequence_parallel",
    "llama3_debugmodel_cpu",
    "own_card",
    "qwen3_debugmodel_cpu",
    "transformers_gpt2",
    "transformers_qwen3",
)
_MODEL = re.compile(r'^model = "(?P<card>.*)[/#](?P<flavor>\w+)"', re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class CardBase:
    """A card's text, and a spec that speaks of a file `damaged.card.toml` beside it."""

    name: str
    model: str
    spec: str
    text: str

    @classmethod
    def of(cls, name: str) -> CardBase:
        """The card of an example."""
        spec = (EXAMPLES / f"{name}.toml").read_text()
        match = _MODEL.search(spec)
        assert match is not None
        path = Cards().path(match["card"]) or EXAMPLES / match["card"]
        model = f'model = "damaged.card.toml#{match["flavor"]}"'
        text = path.read_text()
        named = tomli.loads(text)["model"]
        return cls(name=name, model=named, spec=_MODEL.sub(model, spec), text=text)

    def request(self, folder: Path, data: bytes) -> Request:
        """A request for the spec, with these bytes for its card; what was read before is not asked again."""
        (folder / "damaged.card.toml").write_bytes(data)
        source = Source(name=str(folder / "spec.toml"), text=self.spec)
        return Request(source=source, cards=Cards(), plugins=PLUGINS)


CARD_BASES = [CardBase.of(name) for name in NAMES]
