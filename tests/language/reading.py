"""Specs, plugins and short ways to read them, for the tests of the language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from meshlang.diagnostics import Bag, Diagnostic, Edit
from meshlang.language.load import load_document
from meshlang.language.read import read
from meshlang.language.spec import Spec
from meshlang.registry import Plugins, Registry
from meshlang.source import Source

FULL = """\
meshlang = 1
model = "llama3/debugmodel"
uneven = { vocab = "pad" }

[mesh]
pp = 2
dp = "rest"
cp = 2
tp = 2

[sizes]
batch = 64
seq = 8192
accumulation = 2

[precision]
state = "float32"
compute = "bfloat16"
reduce = "float32"

[topology]
order = ["pp", "dp", "cp", "tp"]
ranks_per_node = 8
inside_node = ["tp"]
on."h100x8".mesh.tp = 8

[place]
batch = "dp"
seq = ["cp", "tp"]
heads = "tp"

[within."layers.*.{attention,feed_forward}"]
seq = "cp"

[store]
over = ["dp", "cp"]
after_forward = "free"
except = ["layers.0.**"]

[pipeline]
schedule = "interleaved"
microbatches = 8
subsequences = 2
chunks = 2
split = "embed + 1 | 2 | 2 | 1 + norm + head"
warm = true

[strategy.ring]
axis = "cp"
balance = "head_tail"
steps = 3
ratio = 0.5
groups = ["a", "b"]

[at."layers.0.attention"]
heads = "whole"
why = "the first block runs an unsharded reference kernel"

[expect]
memory_per_rank = "2 GiB"
state_sharded = 0.95

[[check]]
name = "wo stays row-parallel"
tensor = "layers.[1-5].attention.wo.weight"
expect = { tp = "S(1)", dp = "stored", cp = "R" }

[launch]
recipe = "torchtitan.models.llama3:llama3_debugmodel"
ranks = 8
set = { "training.steps" = 10, optimizer = { lr = 1e-3, betas = [0.9, 0.95] } }
"""

SMALL = 'meshlang = 1\nmodel = "m"\n[mesh]\ndp = 2\n'


@dataclass(frozen=True, kw_only=True)
class Ring:
    """A strategy with a field of each kind that TOML spells."""

    axis: str
    balance: Literal["head_tail", "none"] = "head_tail"
    steps: int | None = None
    ratio: float = 1.0
    groups: tuple[str, ...] = ()
    quiet: bool = False
    depth: Literal[1, 2] = 1
    size: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        if self.steps == 0:
            raise ValueError("0 steps do nothing")
        if self.steps == -1:
            raise RuntimeError("no such thing")


@dataclass(frozen=True, kw_only=True)
class Interleaved:
    """A schedule that needs a shared key, and has one of its own."""

    chunks: int
    warm: bool = False


@dataclass(frozen=True, kw_only=True)
class Odd:
    """A strategy with a field that no TOML value spells."""

    table: dict[str, int]


class Plain:
    """A strategy that is no dataclass."""


PLUGINS = Plugins(
    strategies=Registry("meshlang.strategies", {"ring": Ring, "again": Ring, "odd": Odd, "plain": Plain}),
    schedules=Registry("meshlang.schedules", {"interleaved": Interleaved}),
)


def attempt(
    source: Source | str,
    *,
    sets: Sequence[str] = (),
    on: str | None = None,
    overlay: Mapping[str, str] | None = None,
) -> tuple[Spec | None, list[Diagnostic]]:
    """The spec of a text, and the findings; one of them is there and the other is not."""
    bag = Bag()
    given = Source("spec.toml", source) if isinstance(source, str) else source
    document = load_document(given, sets=sets, on=on, overlay=overlay, bag=bag)
    spec = None if document is None else read(document, bag, PLUGINS)
    assert (spec is None) == (len(bag) > 0)
    return spec, list(bag)


def spec_of(source: Source | str, *, sets: Sequence[str] = (), on: str | None = None) -> Spec:
    """The spec of a text without findings."""
    spec, found = attempt(source, sets=sets, on=on)
    assert spec is not None, [(each.code, each.message, str(each.label.span)) for each in found]
    return spec


def codes(text: str, *, sets: Sequence[str] = ()) -> list[str]:
    """Codes of a text's findings, in the order of their places."""
    return [each.code for each in attempt(text, sets=sets)[1]]


def finding(text: str, *, sets: Sequence[str] = (), on: str | None = None) -> Diagnostic:
    """The one finding of a text."""
    (found,) = attempt(text, sets=sets, on=on)[1]
    return found


def edited(text: str, edit: Edit) -> str:
    """The text with an edit applied."""
    return text[: edit.span.start] + edit.text + text[edit.span.end :]
