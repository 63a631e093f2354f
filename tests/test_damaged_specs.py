"""Damaged specs through the whole compiler: findings or a plan, never a traceback, and no silent slip of a key.

The default run makes about 2,000 damages; MESHLANG_MUTATIONS=20000 (`make mutation`) the full count.
Damages are drawn from a seed, so a failure repeats.
"""

from __future__ import annotations

import os
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from meshlang.card.find import Cards
from meshlang.cli import codes
from meshlang.compiler import Request, check, compile, load, resolved_of
from meshlang.diagnostics import Bag, Diagnostic, SpecError
from meshlang.language.load import machines
from meshlang.language.pattern import Pattern, PatternError
from meshlang.language.plugins import load as load_plugin
from meshlang.language.shape import Rows, Schedule, Strategies, Table
from meshlang.language.tables import ROOT as TABLES
from meshlang.language.toml import Node, scan
from meshlang.mesh import KNOWN_AXES
from meshlang.plan.data import from_json, to_json
from meshlang.registry import Plugins
from meshlang.render import render
from meshlang.source import Source, Span

COUNT = int(os.environ.get("MESHLANG_MUTATIONS", "2000"))
EXAMPLES = Path(__file__).parents[1] / "examples"
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


def outcomes(request: Request) -> Iterator[tuple[Diagnostic, ...]]:
    """The findings of a spec, then those of it on each of its machines."""
    yield found_in(request)
    root = scan(request.source, Bag())
    for name in machines(root) if root is not None else ():
        yield found_in(replace(request, on=name))


def found_in(request: Request) -> tuple[Diagnostic, ...]:
    """Findings; none when there is a plan. Anything else that is raised is a failure."""
    try:
        plan = compile(request)
    except SpecError as error:
        return error.diagnostics
    assert plan.state_bytes is not None
    return ()


def hold(found: tuple[Diagnostic, ...]) -> None:
    """Findings are in order to be shown: a known code, a place in its source, words in every form."""
    for each in found:
        assert each.code in PAGES, each.code
        for label in (each.label, *each.labels):
            assert 0 <= label.span.start <= label.span.end <= len(label.span.source.text), each
    for form in ("text", "short", "json"):
        assert render(found, form)  # pyright: ignore[reportArgumentType]


PAGES = frozenset(codes())


def pick(draw: random.Random, heavy: bool = True) -> Base:
    """A base; one of a large model now and then."""
    return draw.choice(BASES) if heavy and draw.randrange(RARE) == 0 else draw.choice(LIGHT)


# Keys


@dataclass(frozen=True, kw_only=True)
class Known:
    """A key as written, and whether another spelling of it is legal at its place."""

    span: Span
    legal: Callable[[str], bool]


def keys(base: Base) -> list[Known]:
    """Every key of the text that the language or the model knows."""
    root = scan(base.request.source, Bag())
    assert root is not None
    return list(_keys(root, TABLES, (), _Words.of(base)))


@dataclass(frozen=True, kw_only=True)
class _Words:
    """What may be a key in the tables whose keys are not fixed."""

    axes: frozenset[str]
    mesh: frozenset[str]
    names: frozenset[str]
    modules: tuple[str, ...]

    @classmethod
    def of(cls, base: Base) -> _Words:
        spec = load(base.request)
        model = resolved_of(spec, base.request).model
        order = spec.topology.order or ()
        mesh = frozenset(entry.name for entry in spec.mesh)
        axes = frozenset({*KNOWN_AXES, *(word.value for word in order)})
        return cls(axes=axes, mesh=mesh, names=model.names, modules=model.modules)

    def legal(self, path: tuple[str, ...], key: str) -> bool:
        """True where `key` is a free key of the table at `path` that means something else there."""
        if path == ("mesh",):
            return key in self.axes
        if path in (("place",), ("uneven",)) or (path[:1] in (("within",), ("at",)) and len(path) == 2):
            return key in self.names
        if path in (("within",), ("at",)):
            return self._covers(key)
        return path == ("check", "expect") and key in self.mesh

    def _covers(self, glob: str) -> bool:
        try:
            pattern = Pattern.parse(glob)
        except PatternError:
            return False
        return all(any(each.covers(module) for module in self.modules) for each in pattern.alternatives())


def _keys(node: Node, table: Table, path: tuple[str, ...], words: _Words) -> Iterator[Known]:
    if path[:2] == ("topology", "on") or path == ("launch", "set"):
        yield from _machine_keys(node, path, words)
        return
    for name, inner in node.value.items():
        if inner.key is not None:
            yield Known(span=inner.key, legal=_legal(table, path, words))
        shape = table.keys[name].shape if name in table.keys else table.free
        below = _shape(shape, name, inner)
        for each in inner.value if isinstance(inner.value, tuple) else (inner,):
            if below is not None and isinstance(each.value, dict):
                yield from _keys(each, below, (*path, name), words)


def _machine_keys(node: Node, path: tuple[str, ...], words: _Words) -> Iterator[Known]:
    """Names of machines and flags of torchtitan are anyone's; what stands in a machine is the language's again."""
    if path == ("topology", "on"):
        for machine in node.value.values():
            yield from _keys(machine, TABLES, (), words)


def _legal(table: Table, path: tuple[str, ...], words: _Words) -> Callable[[str], bool]:
    return lambda key: key in table.keys or words.legal(path, key)


def _shape(shape: object, name: str, node: Node) -> Table | None:
    """The table that stands behind a key, a plugin's fields included."""
    if isinstance(shape, Rows):
        return shape.table
    if isinstance(shape, Strategies):
        fields = {each: load_plugin(PLUGINS.strategies, each).table for each in node.value}
        return Table(keys={each: replace(_ANY, shape=table) for each, table in fields.items()})
    if isinstance(shape, Schedule):
        plugin = load_plugin(PLUGINS.schedules, node.value["schedule"].value)
        return Table(keys={**shape.shared.keys, **plugin.table.keys})
    if name in ("on", "set"):
        return Table()
    return shape if isinstance(shape, Table) else None


_ANY = TABLES.keys["mesh"]


@cache
def _keys_of(name: str) -> tuple[Known, ...]:
    return tuple(keys(next(base for base in BASES if base.name == name)))


def one_letter(draw: random.Random, word: str) -> str:
    """One letter more, less or other, or two neighbours swapped."""
    letters = [i for i, char in enumerate(word) if char.isalnum() or char == "_"]
    at, other = draw.choice(letters), draw.choice(string.ascii_lowercase + "_")
    kind = draw.randrange(4)
    if kind == 0:
        return word[:at] + other + word[at + 1 :]
    if kind == 1:
        return word[:at] + other + word[at:]
    if kind == 2 and len(letters) > 1:
        return word[:at] + word[at + 1 :]
    after = word[at + 1 : at + 2]
    return word[:at] + after + word[at] + word[at + 2 :] if after.isalnum() else word[:at] + other + word[at + 1 :]


def _bare(text: str) -> str:
    return text[1:-1] if text[:1] in ("'", '"') else text


# Damages without a promise but one: no traceback

LITERALS = (
    *("0", "1", "-1", "3", "7", "1.5", "inf", "nan", "true", "false", '""', '"tp"', '"whole"', '"rest"', '"R"'),
    *('"S(1)"', '"2 GiB"', "[]", '["tp"]', '["tp", "dp"]', "[[]]", "[1]", "{}", "{ a = 1 }", '{ tp = "R" }'),
    *("1979-05-27", "07:32:00", "9223372036854775807", '"layers.*"', '"**"', '"stored"', '"llama/tiny"', "0x10"),
)


def retyped(draw: random.Random, base: Base) -> str:
    """A value replaced by one of another type."""
    spans = list(_values(scan(base.request.source, Bag())))
    span = draw.choice(spans)
    return base.text[: span.start] + draw.choice(LITERALS) + base.text[span.end :]


def _values(node: Node | None) -> Iterator[Span]:
    inner = node.value if node is not None and isinstance(node.value, (dict, tuple)) else ()
    for each in inner.values() if isinstance(inner, dict) else inner:
        if not each.span.text.startswith("[") or isinstance(each.value, tuple):
            yield each.span
        yield from _values(each)


def truncated(draw: random.Random, base: Base) -> str:
    """A text that ends early, or begins late."""
    at = draw.randrange(len(base.text))
    return base.text[:at] if draw.randrange(2) else base.text[at:]


def relined(draw: random.Random, base: Base) -> str:
    """Lines left out, doubled or swapped."""
    lines = base.text.splitlines(keepends=True)
    for _ in range(draw.randrange(1, 4)):
        one, other = draw.randrange(len(lines)), draw.randrange(len(lines))
        kind = draw.randrange(3)
        if kind == 0 and len(lines) > 1:
            del lines[one]
        elif kind == 1:
            lines.insert(other, lines[one])
        else:
            lines[one], lines[other] = lines[other], lines[one]
    return "".join(lines)


def bytes_changed(draw: random.Random, base: Base) -> bytes:
    """Some bytes replaced, put in or left out."""
    data = bytearray(base.text.encode())
    for _ in range(draw.randrange(1, 9)):
        at = draw.randrange(len(data))
        some = bytes(draw.randrange(256) for _ in range(draw.randrange(3)))
        data[at : at + draw.randrange(3)] = some
    return bytes(data)


def relettered(draw: random.Random, base: Base) -> str:
    """One letter of any word changed, in keys, values and comments."""
    at = draw.choice([i for i, char in enumerate(base.text) if char.isalnum()])
    return base.text[:at] + draw.choice(string.ascii_letters + string.digits) + base.text[at + 1 :]


DAMAGES = (retyped, truncated, relined, bytes_changed, relettered)


@pytest.mark.parametrize("base", BASES, ids=[Path(base.name).stem for base in BASES])
def test_bases_have_no_findings(base: Base) -> None:
    """Every spec that is damaged here has no findings before, on any of its machines."""
    assert not any(outcomes(base.request))


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.__name__ for damage in DAMAGES])
def test_damage_gives_findings_or_a_plan(damage: Callable[[random.Random, Base], str | bytes]) -> None:
    """Whatever is done to a spec, the compiler gives findings that can be shown, or a plan that reads back."""
    draw = random.Random(damage.__name__)
    for count in range(COUNT // 8):
        base = pick(draw)
        made = damage(draw, base)
        request = base.of(made if isinstance(made, bytes) else made.encode())
        found = check(request) if count % 40 == 0 else found_in(request)
        hold(found) if found else None
        if not found and count % 10 == 0:
            plan = compile(request)
            assert from_json(to_json(plan)) == plan


def test_no_slip_of_a_key_is_silent() -> None:
    """A key with one letter changed is a finding, unless the new word is a legal key of the same table.

    A key that only one machine of `[topology.on]` has is a finding with `--on` that machine.
    """
    draw = random.Random("keys")
    silent = []
    for _ in range(COUNT * 3 // 8):
        base = pick(draw)
        key = draw.choice(_keys_of(base.name))
        word = one_letter(draw, key.span.text)
        if key.legal(_bare(word)) or _bare(word) == _bare(key.span.text):
            continue
        text = base.text[: key.span.start] + word + base.text[key.span.end :]
        found = next(filter(None, outcomes(base.of(text.encode()))), ())
        hold(found) if found else silent.append((base.name, key.span.text, word))
    assert silent == []
