"""Specs and cards that have the shape of ones: every table and key where it belongs, and values of any kind in them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import tomli
from hypothesis import strategies as st
from targets import CARD_BASES, SPEC_TEXTS

AXES = ("pp", "dp", "cp", "block", "ep", "tp", "mine")
DIMS = ("batch", "seq", "heads", "kv_heads", "mlp", "vocab", "embed", "head_dim", "positions")
MODELS = ("llama/tiny", "llama/debug", "llama3/debugmodel", "qwen3/debugmodel", "block_diffusion/tiny")
SCHEDULES = (
    "1f1b",
    "gpipe",
    "interleaved_1f1b",
    "zbv",
    "dualpipev",
    "seq1f1b",
    "bsipipe",
    "seqv",
    "chimera",
    "bitpipe",
)
STRATEGIES = ("ring_attention", "all_gather_attention", "ulysses", "csbp", "combined_context")
PRESETS = ("preset:ddp", "preset:fsdp", "preset:tensor_parallel", "preset:sequence_parallel", "preset:whole_weights")
PATTERNS = (
    *("**", "*", "layers.*", "layers.[0-1].attention", "layers.*.{attention,feed_forward}", "layers.*.attention.wo"),
    *("tok_embeddings", "lm_head", "norm", "{norm,lm_head}", "layers.[1-9999]", "layers.0.*"),
)

sizes = st.sampled_from((1, 2, 4, 8, 16, 64, 128, *(1, 2, 3, 4, 5, 6, 8, 12, 16, 32) * 3, 2**20, 2**31, 2**63 - 1, 0))
words = st.sampled_from(
    (*AXES, *DIMS, "whole", "rest", "R", "S(0)", "S(9)", "stored", "2 GiB", "", "a" * 300, "\u00e9")
)
#: A value of any kind, now and then.
anything: st.SearchStrategy[Any] = st.recursive(
    st.one_of(sizes, words, st.booleans(), st.floats(), st.text(max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=2)),
    max_leaves=4,
)


def mostly(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The usual values, and one in sixty of any kind."""
    return st.integers(0, 59).flatmap(lambda n: anything if n == 0 else usual)


def table(keys: Mapping[str, st.SearchStrategy[Any]], *always: str) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these keys."""
    required = {key: mostly(keys[key]) for key in always}
    return st.fixed_dictionaries(required, optional={key: mostly(keys[key]) for key in keys if key not in always})


axis = st.sampled_from(AXES)
axes = st.lists(axis, max_size=3)
pattern = st.sampled_from(PATTERNS)
cut = st.one_of(axis, axes, st.just("whole"))
place = st.dictionaries(st.sampled_from(DIMS), mostly(cut), max_size=6)
kind = st.dictionaries(axis, st.sampled_from(("R", "S(0)", "S(1)", "stored")), max_size=2)
dtype = st.sampled_from(("float32", "bfloat16", "float64"))
mesh = st.dictionaries(
    axis, st.one_of(st.sampled_from((1, 2, 2, 4, 8)), sizes, st.just("rest")), min_size=1, max_size=4
)
split = st.sampled_from(("embed + 1 | 2 + norm + head", "embed + 2 | norm + head", "1 | 1", "|", "embed", "999999 | 1"))

_KEYS: Mapping[str, st.SearchStrategy[Any]] = {
    "meshlang": st.just(1),
    "model": st.sampled_from(MODELS),
    "include": st.lists(st.sampled_from((*PRESETS, "cards", "nothing.toml")), max_size=3, unique=True),
    "uneven": st.dictionaries(st.sampled_from(DIMS), st.just("pad"), max_size=2),
    "mesh": mesh,
    "sizes": table({"batch": sizes, "seq": sizes, "accumulation": sizes}),
    "precision": table({"state": dtype, "compute": dtype, "reduce": dtype}),
    "topology": table(
        {
            "order": st.permutations(AXES),
            "ranks_per_node": sizes,
            "inside_node": axes,
            "on": st.dictionaries(st.sampled_from(("a", "b")), st.fixed_dictionaries({"mesh": mesh}), max_size=2),
        }
    ),
    "place": place,
    "within": st.dictionaries(pattern, place, max_size=2),
    "store": table(
        {"over": axes, "after_forward": st.sampled_from(("free", "keep")), "except": st.lists(pattern, max_size=2)},
        "over",
    ),
    "recompute": table({"modules": st.lists(pattern, max_size=2)}),
    "pipeline": table(
        {
            "schedule": st.sampled_from(SCHEDULES),
            "microbatches": sizes,
            "subsequences": sizes,
            "chunks": sizes,
            "split": split,
            "weights": st.sampled_from(("late", "with")),
        },
        "schedule",
        "microbatches",
    ),
    "strategy": st.dictionaries(
        st.sampled_from(STRATEGIES),
        table({"axis": axis, "balance": words, "block_size": sizes, "context": sizes, "views": sizes}, "axis"),
        max_size=2,
    ),
    "at": st.dictionaries(
        pattern, st.builds(lambda rules, why: {**rules, "why": why}, place, st.just("a test")), max_size=2
    ),
    "expect": table(
        {"memory_per_rank": st.sampled_from(("2 GiB", "1 B", "1e9 TiB")), "state_sharded": st.floats(0, 1)}
    ),
    "check": st.lists(
        table({"name": words, "tensor": pattern, "expect": kind}, "name", "tensor", "expect"), min_size=1, max_size=2
    ),
    "launch": table(
        {
            "recipe": st.sampled_from(("meshlang_models.llama:tiny", "a", "a:b")),
            "ranks": sizes,
            "set": st.dictionaries(st.sampled_from(("training.steps", "training.seq_len", "x")), mostly(sizes)),
        }
    ),
}

dims = st.lists(st.sampled_from((*DIMS, "layers", "(heads head_dim)", "(kv_heads", ")")), max_size=4).map(" ".join)
ports = table(
    {"input": st.dictionaries(st.sampled_from(("x", "input")), dims, max_size=2), "output": dims, "whole": axes}
)
boundary = st.sampled_from(("", "layers.*", "layers.*.attention", "tok_embeddings", "lm_head", "layers.*.attention.wo"))
flowing = st.sampled_from(
    ("input.x", "output", "tok_embeddings input.input", "lm_head output", "layers.* input.x", "?")
)
flavor = st.dictionaries(st.sampled_from((*DIMS, "layers", "tied", "rope")), mostly(sizes), min_size=3)

_CARD_KEYS: Mapping[str, st.SearchStrategy[Any]] = {
    "card": st.just(1),
    "model": st.just("m"),
    "whole": st.lists(st.sampled_from(DIMS), max_size=4),
    "units": st.lists(pattern, max_size=3),
    "flavor": st.fixed_dictionaries({"tiny": flavor, "small": flavor, "debugmodel": flavor}),
    "param": st.dictionaries(pattern, dims, min_size=1, max_size=4),
    "buffer": st.dictionaries(pattern, dims, max_size=2),
    "activation": st.dictionaries(boundary, mostly(ports), max_size=4),
    "flow": st.dictionaries(flowing, flowing, max_size=3),
    "same": st.dictionaries(st.sampled_from(DIMS), st.sampled_from(DIMS), max_size=3),
    "tied": st.dictionaries(pattern, pattern, max_size=2),
    "split": st.dictionaries(st.sampled_from(("embed", "layers", "norm", "head")), pattern, max_size=4),
    "saved": st.dictionaries(boundary, st.dictionaries(flowing, mostly(sizes), max_size=2), max_size=2),
    "loss": table({"logits": dims, "vocab": st.sampled_from(DIMS)}, "logits", "vocab"),
}


def toml(value: Any) -> str:
    """A value as TOML has it in one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml(str(key))} = {toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value).lower()


def text(tables: Mapping[str, Any]) -> bytes:
    """A document of them."""
    lines = [f"{name} = {toml(value)}" for name, value in tables.items()]
    return "\n".join(lines).encode("utf-8", errors="surrogatepass")


@st.composite
def edited(draw: st.DrawFn, bases: Sequence[dict[str, Any]], keys: Mapping[str, st.SearchStrategy[Any]]) -> bytes:
    """A document without findings, some keys of which are left out, replaced, or have others beside them."""
    found = dict(draw(st.sampled_from(bases)))
    for name in draw(st.lists(st.sampled_from(sorted(keys)), min_size=1, max_size=3)):
        value, old = draw(keys[name]), found.get(name)
        if isinstance(value, dict) and isinstance(old, dict) and draw(st.integers(0, 3)):
            found[name] = {**old, **value}
        elif old is None or draw(st.integers(0, 3)):
            found[name] = value
        else:
            del found[name]
    return text(found)


def some(base: Sequence[str], keys: Mapping[str, st.SearchStrategy[Any]], *always: str) -> st.SearchStrategy[bytes]:
    """Documents from nothing, and three times as many from one that is fine."""
    near = edited([tomli.loads(each) for each in base], keys)
    return st.one_of(table(keys, *always).map(text), near, near, near)


specs: st.SearchStrategy[bytes] = some(SPEC_TEXTS, _KEYS, "meshlang", "model", "mesh")
cards: st.SearchStrategy[bytes] = some(
    [base.text for base in CARD_BASES], _CARD_KEYS, "card", "model", "flavor", "param"
)
cell = st.builds("{}{}{}".format, st.integers(0, 4), st.sampled_from("FBIWX"), st.integers(0, 3))
orders: st.SearchStrategy[bytes] = st.lists(
    st.lists(st.one_of(cell, st.just("")), max_size=10).map(",".join), max_size=3
).map(lambda rows: "\n".join(rows).encode())

SHAPES: Mapping[str, st.SearchStrategy[bytes]] = {"spec": specs, "card": cards, "order": orders}
