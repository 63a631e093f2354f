"""A cost model of block diffusion over 8 to 512 GPUs, with every assumption here, beside the published figures.

Assumed: H200 GPUs at 989 Tflop/s in bfloat16, of which matrix products and attention reach half; 8
GPUs a node with 350 GB/s each between them, 45 GB/s each between nodes. A layer is recomputed: its
forward runs twice, and its backward takes twice the forward's matrix products and 2.5 times its
attention. Every algorithm has the same kernels, and hides its gather behind the attention of each
block to itself and nothing else. Optimizer, embedding, head, FSDP and launch times are left out:
they are the same for all, and make every ratio smaller.

Published (arXiv 2609.19242): ratios of whole training steps on H200 and H100 GPUs, against a
baseline with other kernels, whose loss is replicated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshlang.report.tables import table

PEAK, REACHED, INSIDE, BETWEEN, NODE, ELEMENT = 989e12, 0.5, 350e9, 45e9, 8, 2


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A dense decoder: 14 billion parameters without embeddings."""

    layers: int = 40
    embed: int = 5120
    heads: int = 40
    kv_heads: int = 8
    head_dim: int = 128
    mlp: int = 17408
    block_size: int = 32

    @property
    def weights(self) -> int:
        """Of one layer's matrices."""
        attention = 2 * self.embed * self.head_dim * (self.heads + self.kv_heads)
        return attention + 3 * self.embed * self.mlp


#: Clean streams for two views, and how often keys and values of both streams are sent.
ALGORITHMS = {"CP": (2, 2), "BP": (2, 0), "CSBP": (2, 1), "CSBP + share_clean": (1, 1)}


def seconds(name: str, tokens: int, gpus: int, shape: Shape | None = None) -> float:
    """Of one layer, for one sequence in two views over so many GPUs."""
    shape = shape or Shape()
    clean, streams = ALGORITHMS[name]
    share = 1 if name == "BP" else 1 / gpus
    rows = tokens * (2 / gpus + clean * share)
    pairs = tokens * tokens / 2 * (2 / gpus + clean * share)
    rate = PEAK * REACHED
    linear = 2 * shape.weights * rows / rate
    attention = 4 * shape.heads * shape.head_dim * pairs / rate
    local = 4 * shape.heads * shape.head_dim * shape.block_size * 2 * tokens / gpus / rate
    exposed = max(0.0, traffic(tokens, gpus, shape) * clean * streams / bandwidth(gpus) - local)
    return (2 + 2) * linear + (2 + 2.5) * attention + 3 * exposed


def traffic(tokens: int, gpus: int, shape: Shape) -> float:
    """Bytes that a GPU receives of one stream's keys and values: (P - 1) / P of S = 2 L H_kv d s."""
    return (gpus - 1) / gpus * 2 * tokens * shape.kv_heads * shape.head_dim * ELEMENT


def bandwidth(gpus: int) -> float:
    """Bytes a second of a ring over so many GPUs: its slowest link."""
    return INSIDE if gpus <= NODE else BETWEEN


#: Measured by the paper: what, ratio.
PUBLISHED = (
    ("SFT, 256K, 16 H200", "1.18-1.45"),
    ("conversion of autoregressive models, 256K, 16 H200", "1.27-1.33"),
    ("SFT, 512K", "1.61"),
    ("drafter, 512K, 8 H100", "2.48"),
    ("drafter, 1M, 8 H100", "7.59"),
)


def predictions() -> Iterator[str]:
    """The model's ratios to CP with the same kernels, then the published ones and the published traffic."""
    yield "predicted step time of CP over that of the algorithm, 14B dense, two views, one sequence over all GPUs"
    sizes = (8, 16, 32, 64, 128, 256, 512)
    rows = [
        [f"{tokens // 1024}K", name, *(f"{seconds('CP', tokens, n) / seconds(name, tokens, n):.2f}" for n in sizes)]
        for tokens in (65536, 262144, 524288, 1048576)
        for name in ALGORITHMS
        if name != "CP"
    ]
    yield from table(["tokens", "algorithm", *map(str, sizes)], rows, right=frozenset(range(2, 9)))
    yield ""
    yield "published, against another baseline: not to be read as this model's error alone"
    gpus = dict(zip((row[0] for row in PUBLISHED), ((262144, 16), (262144, 16), (524288, 16)), strict=False))
    rows = [[what, ratio, _ratio(gpus.get(what))] for what, ratio in PUBLISHED]
    yield from table(["setting", "published", "predicted CSBP"], rows)
    gib = 3 * Shape().layers * traffic(262144, 8, Shape()) / 2**30
    yield f"  traffic at 256K, 40 layers, 8 ranks, recomputed: {gib:.2f} and {2 * gib:.2f} GiB a GPU"
    yield "  published: 105.00 and 210.00"


def _ratio(setting: tuple[int, int] | None) -> str:
    """Nothing for a setting whose objective the model does not have."""
    return "not modelled" if setting is None else f"{seconds('CP', *setting) / seconds('CSBP', *setting):.2f}"
