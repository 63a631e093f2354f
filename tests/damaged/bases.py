"""Specs without findings, which are damaged: two that have every table, and the examples."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from meshlang.card.find import Cards
from meshlang.compiler import Request
from meshlang.registry import Plugins
from meshlang.source import Source

EXAMPLES = Path(__file__).parents[2] / "examples"
CARDS = Cards(extra={name: path for name in ("llama", "llama3", "qwen3") if (path := Cards().path(name)) is not None})
PLUGINS = Plugins()

#: Larger models only take longer; one damage in so many is made to a spec of one.
RARE = 20
LARGE = ("llama3_8b", "llama3_70b", "llama3_405b", "machines")

EVERY_TABLE = """
meshlang = 1
model = "llama/tiny"
include = ["preset:ddp"]
uneven = { positions = "pad" }
mesh = { dp = 2, cp = 2, tp = 2 }

[sizes]
batch = 8
seq = 256
accumulation = 2

[precision]
state = "float32"
compute = "bfloat16"
reduce = "float32"

[topology]
order = ["dp", "cp", "tp"]
ranks_per_node = 4
inside_node = ["tp"]
on.large.sizes.batch = 16
on.large.mesh = { dp = 4 }
on.large.launch.ranks = 16

[place]
heads = "tp"
kv_heads = "tp"
mlp = "tp"
vocab = "tp"
seq = ["cp", "tp"]

[within."{tok_embeddings,lm_head,layers.*.{attention,feed_forward}}"]
seq = "cp"

[store]
over = ["dp", "cp"]
after_forward = "free"
except = ["norm"]

[strategy.all_gather_attention]
axis = "cp"

[at."layers.[0-1].feed_forward"]
mlp = "whole"
why = "compared with an unsharded kernel"

[expect]
memory_per_rank = "16 MiB"
state_sharded = 0.5

[[check]]
name = "wo is row-parallel"
tensor = "layers.[1-3].attention.wo.weight"
expect = { tp = "S(1)", dp = "stored" }

[[check]]
name = "norm is whole"
tensor = "norm.weight"
expect = { tp = "R" }

[launch]
ranks = 8
set."training.steps" = 10
"""

PIPELINE = """
meshlang = 1
model = "llama/tiny"

[mesh]
pp = 2
tp = 2

[sizes]
batch = 8
seq = 128

[place]
heads = "tp"
kv_heads = "tp"
mlp = "tp"
vocab = "tp"

[pipeline]
schedule = "interleaved_1f1b"
microbatches = 4
chunks = 2
"""


@dataclass(frozen=True, kw_only=True)
class Base:
    """A spec without findings, and what a key of it may be called."""

    name: str
    text: str

    @property
    def request(self) -> Request:
        """A request for the spec as it is."""
        return self.of(self.text.encode())

    def of(self, data: bytes) -> Request:
        """A request for other text under the same name."""
        return Request(source=Source.decode(self.name, data), cards=CARDS, plugins=PLUGINS)


def bases() -> list[Base]:
    """Two specs that have every table, then the examples."""
    own = [Base(name="every_table.toml", text=EVERY_TABLE), Base(name="pipeline.toml", text=PIPELINE)]
    return own + [Base(name=str(path), text=path.read_text()) for path in sorted(EXAMPLES.glob("*.toml"))]


BASES = bases()
LIGHT = [base for base in BASES if not Path(base.name).name.startswith(LARGE)]


def pick(draw: random.Random, heavy: bool = True) -> Base:
    """A base; one of a large model now and then."""
    return draw.choice(BASES) if heavy and draw.randrange(RARE) == 0 else draw.choice(LIGHT)
