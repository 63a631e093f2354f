"""Reading a card: every mistake is a finding with a place, and no text makes a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from real_models import ROOT

from meshlang.card.expand import MOST_NAMES, ExpandError, choices, expand
from meshlang.card.model import Model
from meshlang.card.read import flavors, read_card
from meshlang.compiler import Request, load, plan_of
from meshlang.diagnostics import Bag, Diagnostic, SpecError
from meshlang.language.spec import Spec
from meshlang.language.toml import Node, scan
from meshlang.plan.resolve import resolve
from meshlang.source import Source

SMALL = """card  = 1
model = "small"
whole = ["batch", "seq", "embed"]
units = ["layers.*", "head"]
[flavor.a]
layers = 2
embed = 4
mlp = 8
vocab = 16
[param]
"layers.*.up" = "mlp embed"
"layers.*.down" = { weight = "embed mlp", bias = "embed" }
"head" = "vocab embed"
[buffer]
"head" = { scale = "" }
[activation]
"" = { input.x = "batch seq embed", output = "batch seq vocab" }
"layers.*.up" = { input.input = "batch seq embed", output = "batch seq mlp" }
"layers.*.down" = { input.input = "batch seq mlp", output = "batch seq embed" }
"head" = { input.input = "batch seq embed", output = "batch seq vocab", whole = ["embed"] }
[flow]
"head output" = "output"
"layers.*.up output" = "layers.*.down input.input"
[loss]
logits = "batch seq vocab"
vocab = "vocab"
"""


def read(text: str, flavor: str = "a") -> tuple[Model | None, list[Diagnostic]]:
    """The model, or None, and the findings."""
    bag = Bag()
    model = read_card(Source("card.toml", text), flavor, bag)
    assert (model is None) == bool(len(bag))
    return model, list(bag)


def edited(old: str, new: str) -> str:
    """The small card with one edit."""
    assert old in SMALL
    return SMALL.replace(old, new, 1)


def test_small_card_reads() -> None:
    """The card that the cases below edit is fine."""
    model, found = read(SMALL)
    assert found == []
    assert model is not None
    assert [t.fqn for t in model.tensors][:3] == ["layers.0.up.weight", "layers.1.up.weight", "layers.0.down.weight"]
    assert model.flow["layers.1.up", "output"] == ("layers.1.down", "input.input")


CASES: list[tuple[str, str, str, str]] = [
    ("card  = 1\n", "", "missing-key", ""),
    ("card  = 1", "card = 2", "unknown-version", "2"),
    ("card  = 1", "card = true", "wrong-type", "true"),
    ("card  = 1", 'card = "1"', "wrong-type", '"1"'),
    ('model = "small"\n', "", "missing-key", ""),
    ('model = "small"', "model = 3", "wrong-type", "3"),
    ("whole = [", 'wholes = ["embed"]\nwhole = [', "unknown-key", "wholes"),
    ('"batch", "seq", "embed"]\nunits', '"batch", 3]\nunits', "wrong-type", '["batch", 3]'),
    ('"embed"]\nunits', '"embde"]\nunits', "card-dims", '"embde"'),
    ('["layers.*", "head"]', "3", "wrong-type", "3"),
    ('["layers.*", "head"]', '[["layers.*"]]', "wrong-type", '[["layers.*"]]'),
    ('["layers.*", "head"]', '["layer.*"]', "card-pattern", '"layer.*"'),
    ('["layers.*", "head"]', '["layers.*", "tail"]', "card-pattern", '"tail"'),
    ('["layers.*", "head"]', '["layers.*", "layers.0"]', "card-twice", '"layers.0"'),
    ("[flavor.a]", "[flavor.b]", "unknown-flavor", "[flavor.b]"),
    ("embed = 4", "embed = 4.0", "wrong-type", "4.0"),
    ("embed = 4", "embed = false", "wrong-type", "false"),
    ("embed = 4", "embed = 0", "card-size", "0"),
    ("embed = 4", "embed = 4\nseq = 4", "card-size", "seq"),
    ("embed = 4", "embed = 4\ntied = 1", "wrong-type", "1"),
    ("mlp = 8\n", "", "card-size", '"mlp embed"'),
    ("layers = 2\n", "", "card-pattern", '"layers.*"'),
    ("layers = 2", "layers = 9000000000000000000", "card-pattern", '"layers.*"'),
    ('"mlp embed"', "3", "wrong-type", "3"),
    ('"mlp embed"', '"(mlp embed"', "card-dims", '"(mlp embed"'),
    ('"mlp embed"', '"mlp 3"', "card-dims", '"mlp 3"'),
    ('"mlp embed"', '"embed embed"', "card-dims", '"embed embed"'),
    ('"mlp embed"', '"mlp () embed"', "card-dims", '"mlp () embed"'),
    ('"layers.*.up" = "mlp', '"layers.*.{up" = "mlp', "card-pattern", '"layers.*.{up"'),
    ('"layers.*.up" = "mlp', '"layers..up" = "mlp', "card-pattern", '"layers..up"'),
    ('"layers.*.up" = "mlp', 'layers.up = "mlp', "card-boundary", '"mlp embed"'),
    ('bias = "embed"', "bias = {}", "wrong-type", "{}"),
    ('"head" = "vocab embed"', '"head" = "vocab embed"\n"{head}" = "vocab embed"', "card-twice", '"vocab embed"'),
    ('scale = ""', 'weight = ""', "card-twice", '""'),
    ("[buffer]", "[buffers]", "unknown-key", "buffers"),
    ('"layers.*.up" = { input', '"layers.*.ups" = { input', "card-boundary", '"mlp embed"'),
    ('"layers.*.up" = { input', '"layers" = { input', "card-boundary", '"mlp embed"'),
    ('"layers.*.up" = { input', '"head" = 3\n"layers.*.up" = { input', "syntax", '"head"'),
    ('input.x = "batch', 'inputs.x = "batch', "unknown-key", "inputs"),
    ('input.x = "batch seq embed"', "input = 3", "wrong-type", "3"),
    ('output = "batch seq mlp"', "output = []", "wrong-type", "[]"),
    ('output = "batch seq mlp"', 'output = "batch seq mpl"', "card-size", '"layers.*.up"'),
    ('whole = ["embed"]', 'whole = ["mlp"]', "card-dims", '"head"'),
    ('whole = ["embed"]', 'whole = "embed"', "wrong-type", '"embed"'),
    ('"head" = { input', '"{head,head}" = { input', "card-twice", '"{head,head}"'),
    ('= "output"\n', "= 3\n", "wrong-type", "3"),
    ('= "output"\n', '= "outputs"\n', "card-flow", '"outputs"'),
    ('"head output"', '"heads output"', "card-flow", '"heads output"'),
    ('"head output"', '"head input.input"', "card-flow", '"output"'),
    ('"layers.*.up output"', '"layer.*.up output"', "card-pattern", '"layer.*.up output"'),
    ("[loss]", '"input.x" = "layers.1.down input.input"\n[loss]', "card-flow", '"layers.1.down input.input"'),
    ('logits = "batch seq vocab"\n', "", "missing-key", "loss"),
    ('vocab = "vocab"\n', "", "missing-key", "loss"),
    ('vocab = "vocab"\n', 'vocab = "voc"\n', "card-dims", '"voc"'),
    ('vocab = "vocab"\n', "vocab = 3\n", "wrong-type", "3"),
    ('vocab = "vocab"\n', 'vocab = "vocab"\nweight = 1\n', "unknown-key", "weight"),
    ("[loss]", "[same]\nmlp = 3\n[loss]", "wrong-type", "3"),
    ("[loss]", '[same]\nmlp = "mpl"\n[loss]', "card-dims", '"mpl"'),
    ("[loss]", '[same]\nmlp = "mlp"\n[loss]', "card-dims", '"mlp"'),
    ("[loss]", '[same]\nmlp = "vocab"\nvocab = "embed"\n[loss]', "card-dims", '"vocab"'),
    ("[loss]", '[same]\nmlp = "embed"\n[loss]', "card-dims", '"mlp embed"'),
    ("[loss]", '[tied]\n"head.weight" = 3\n[loss]', "wrong-type", "3"),
    ("[loss]", '[tied]\n"head.weight" = "tail.weight"\n[loss]', "card-tie", '"tail.weight"'),
    ("[loss]", '[tied]\n"head.weight" = "head.weight"\n[loss]', "card-tie", '"head.weight"'),
    ("[loss]", '[tied]\n"head.weight" = "layers.0.up.weight"\n[loss]', "card-tie", '"layers.0.up.weight"'),
    ("[loss]", '[tied]\n"head.scale" = "head.weight"\n[loss]', "card-tie", '"head.scale"'),
]


@pytest.mark.parametrize(("old", "new", "code", "place"), CASES)
def test_mistake_is_a_finding(old: str, new: str, code: str, place: str) -> None:
    """One mistake gives its code at its place."""
    _, found = read(edited(old, new))
    assert (code, place) in [(each.code, each.label.span.text) for each in found]


def test_typo_is_offered_the_near_name() -> None:
    """A near name is offered as an edit that keeps the quotes."""
    _, found = read(edited('"embed"]\nunits', '"embde"]\nunits'))
    assert [(edit.text, edit.span.text) for each in found for help_ in each.help for edit in help_.edits] == [
        ('"embed"', '"embde"')
    ]


def test_mistakes_in_other_flavors_are_found() -> None:
    """Types are held in flavors that are not asked for."""
    _, found = read(SMALL + "[flavor.b]\nembed = []\n")
    assert [each.code for each in found] == ["wrong-type"]


def test_weights_inside_a_boundary_belong_to_it() -> None:
    """A parameter of a module without a boundary belongs to the nearest one around, when that has none inside."""
    text = edited('"head" = "vocab embed"', '"head.inner" = "vocab embed"')
    model, found = read(text)
    assert found == []
    assert model is not None
    assert [t.fqn for t in model.held["head"]] == ["head.inner.weight", "head.scale"]


def test_names_stand_for_many() -> None:
    """Braces and stars are written out, braces outermost."""
    assert [e.fqn for e in expand("a.*.{b,c}", {"a": 2})] == ["a.0.b", "a.1.b", "a.0.c", "a.1.c"]
    assert [e.stars for e in expand("a.*.b.*", {"a": 2, "b": 2})] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [e.fqn for e in expand("", {})] == [""]
    assert list(choices("{a, b}{1,2}")) == ["a1", "a2", "b1", "b2"]


@pytest.mark.parametrize("text", ["*", "a.*", "a..b", ".", "a b", "{a", "a}", "{{a,b},c}", "a*", "{,a}.b"])
def test_names_that_cannot_be_written_out(text: str) -> None:
    """What is no name, or has no size for its star, is refused."""
    with pytest.raises(ExpandError):
        expand(text, {})


@pytest.mark.parametrize("text", ["a.*.b.*", "{0,1}" * 40, "a.*.a.*.a.*.a.*"])
def test_names_without_end_are_refused(text: str) -> None:
    """One name of a card stands for a bounded number, and is refused before they are all made."""
    with pytest.raises(ExpandError, match=str(MOST_NAMES)):
        expand(text, {"a": 2**62, "b": 2**62})


VALUES = (
    *(
        "0",
        "-1",
        "3",
        "99999999999",
        "1.5",
        "true",
        "1979-05-27",
        '""',
        '"x"',
        '"layers.*"',
        '"embed"',
        '"vocab embed"',
    ),
    *('"output"', '"norm output"', '" "', '"("', '"a.*.b input.x"', "[]", '["embed"]', '["embed", 1]', "[[1]]", "{}"),
    *("{ weight = 1 }", '{ weight = "embed" }', '{ input.x = "embed" }', "{ input = 3 }", '{ whole = "embed" }'),
    *('"lm_head.weight"', '"batch seq embed"', '"heads heads"', '"(heads) (head_dim embed)"', '{ a.b.c = "d" }'),
)
KEYS = (
    '"x"',
    '""',
    '"layers.*"',
    "weight",
    "input",
    "output",
    "tied",
    "embed",
    '"lm_head.weight"',
    '"norm output"',
    "a.b",
)


def damaged(text: str, random: Random) -> str:
    """The text with one to three edits: a value or key replaced, a line dropped, doubled or moved, a letter changed."""
    for _ in range(random.choice((1, 1, 2, 3))):
        text = random.choice((_replaced, _replaced, _replaced, _lines, _letter))(text, random)
    return text


def _replaced(text: str, random: Random) -> str:
    node = scan(Source("card.toml", text), Bag())
    if node is None:
        return text
    spans = [(span, words) for each in _nodes(node) for span, words in ((each.span, VALUES), (each.key, KEYS)) if span]
    span, words = random.choice(spans)
    return text[: span.start] + random.choice(words) + text[span.end :]


def _nodes(node: Node) -> Iterator[Node]:
    for inner in node.value.values() if isinstance(node.value, dict) else node.value:
        yield inner
        if isinstance(inner.value, (dict, tuple)):
            yield from _nodes(inner)


def _lines(text: str, random: Random) -> str:
    lines = text.splitlines(keepends=True)
    place, other = random.randrange(len(lines)), random.randrange(len(lines))
    kind = random.randrange(3)
    if kind == 0:
        del lines[place]
    elif kind == 1:
        lines.insert(other, lines[place])
    else:
        lines[place], lines[other] = lines[other], lines[place]
    return "".join(lines)


def _letter(text: str, random: Random) -> str:
    place = random.randrange(len(text))
    return (
        text[:place]
        + random.choice(["", "*", ".", "{", "}", '"', " ", "x", "1", "(", "\u0000", "\n"])
        + text[place + 1 :]
    )


HEAD = """meshlang = 1
model = "card#it"
[mesh]
dp = 2
tp = 2
[sizes]
batch = 8
seq = 64
"""
SMALL_SPEC = HEAD + '[place]\nbatch = "dp"\nmlp = "tp"\nvocab = "tp"\n[store]\nover = ["dp"]\n'
LLAMA_SPEC = 'include = ["preset:sequence_parallel", "preset:tensor_parallel", "preset:fsdp"]\n' + HEAD


def tied_llama() -> str:
    """The card of the small Llama, with its flavor `tiny` tied."""
    text = Source.read(ROOT / "models/llama/card.toml").text
    text = text.replace("[flavor.tiny]", "[flavor.tiny]\ntied = true", 1)
    return text + '\n[tied]\n"tok_embeddings.weight" = "lm_head.weight"\n'


@pytest.mark.parametrize("seed", range(4))
def test_damaged_small_cards_give_findings(seed: int) -> None:
    """Of a card with random damage there is a model that can be planned with, or findings; never a traceback."""
    assert _survived(SMALL, "a", SMALL_SPEC, Random(seed), 700) > 20


@pytest.mark.parametrize("seed", range(3))
def test_damaged_llama_cards_give_findings(seed: int) -> None:
    """So it is with a whole card."""
    assert _survived(tied_llama(), "tiny", LLAMA_SPEC, Random(seed), 100) > 3


def _survived(text: str, flavor: str, spec_text: str, random: Random, times: int) -> int:
    """How many damaged cards could be planned with."""
    spec = load(Request(source=Source("spec.toml", spec_text)))
    planned = 0
    for _ in range(times):
        source, bag = Source("card.toml", damaged(text, random)), Bag()
        model = read_card(source, flavor, bag)
        assert (model is None) == bool(len(bag)), source.text
        flavors(source, Bag())
        planned += model is not None and _planned(spec, model)
    return planned


def _planned(spec: Spec, model: Model) -> bool:
    """True when there is a plan; else there are findings."""
    if any(not tensor.dims for tensor in model.tensors if tensor.kind == "parameter"):
        return False  # FSDP takes no scalar parameter, and what a plan says of one is not the card's affair
    bag = Bag()
    resolved = resolve(spec, model, None, bag)
    if resolved is None:
        assert len(bag)
        return False
    try:
        return bool(plan_of(spec, resolved).tensors)
    except SpecError as error:
        return not error.diagnostics
