"""Names for the dims of a model that nobody named yet, guessed from classes, names and equal sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from .facts import Facts, TensorFact
from .model import RUN_SIZES, Factors, parent

_TOKENS = re.compile(r"tok|wte|word|vocab", re.IGNORECASE)
_POSITIONS = re.compile(r"pos|wpe", re.IGNORECASE)
ATTENTION = re.compile(r"att(n|ention)", re.IGNORECASE)
FEED_FORWARD = re.compile(r"mlp|ffn|feed_?forward|expert", re.IGNORECASE)
_KEYS = re.compile(r"^(w|)(k|v|kv|key|value)s?(_|$)", re.IGNORECASE)
_FUSED = re.compile(r"qkv|c_attn|in_proj|query_key_value", re.IGNORECASE)
_OUTPUT = re.compile(r"^(w?o|o_proj|out|out_proj|c_proj|proj|dense|output)$", re.IGNORECASE)
_TABLE = re.compile(r"rope|rotary|freq|cos|sin|cache|mask|causal|bias|pos", re.IGNORECASE)
_ROTARY = re.compile(r"rope|rotary|freq|cos|sin", re.IGNORECASE)

_HEADS = ("n_heads", "num_heads", "num_attention_heads", "n_head", "heads", "nhead")
_KV_HEADS = ("n_kv_heads", "num_kv_heads", "num_key_value_heads", "kv_heads")
_HEAD_DIM = ("head_dim", "head_size", "d_head", "dim_head")


@dataclass(frozen=True)
class Guess:
    """The dims of one tensor, and what makes one think so."""

    dims: tuple[Factors, ...]
    why: str


@dataclass(frozen=True)
class Names:
    """Dimension names with their sizes, and what each was guessed from. A name has one size."""

    sizes: dict[str, int] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    reserved: frozenset[str] = frozenset()

    def take(self, word: str, size: int, why: str) -> str:
        """`word`, or `word_2` and so on where it already has another size."""
        word = re.sub(r"\W", "_", word)
        word = word if word.isidentifier() else f"dim_{word}".rstrip("_")
        number, name = 1, word
        while name in self.reserved or self.sizes.get(name, size) != size:
            number, name = number + 1, f"{word}_{number + 1}"
        if name not in self.sizes:
            self.sizes[name], self.why[name] = size, why
        return name


@dataclass(frozen=True)
class Guesser:
    """Guesses for one model. Work that remembers: the order of questions is that of the model."""

    facts: Facts
    names: Names
    tensors: Mapping[str, TensorFact]

    def tensor(self, fact: TensorFact) -> Guess:
        """The dims of a tensor, each with a name of its own."""
        if fact.kind == "buffer":
            return self._buffer(fact)
        return self._apart(self._parameter(fact), fact)

    def _apart(self, guess: Guess, fact: TensorFact) -> Guess:
        """The guess with a new name for each dim but the first of a name."""
        seen: set[str] = set()
        dims: list[Factors] = []
        for dim, factors in enumerate(guess.dims):
            if factors[0] in seen:
                name = self.names.take(f"{_own(fact)}_{dim}", fact.shape[dim], f"dim {dim} of `{fact.fqn}`")
                factors = (name,)
            seen.add(factors[0])
            dims.append(factors)
        return Guess(tuple(dims), guess.why)

    @cached_property
    def tokens(self) -> TensorFact | None:
        """The weight of the token embedding: by name, else the longest that is not of positions."""
        tables = [t for t in self.facts.tensors if len(t.shape) == 2 and self._is(t, "Embedding")]
        named = [t for t in tables if _TOKENS.search(t.fqn)]
        other = [t for t in tables if not _POSITIONS.search(t.fqn)]
        return named[0] if named else max(other, key=lambda t: t.shape[0], default=None)

    @cached_property
    def embed(self) -> str | None:
        """The name of the model's width, when something has it."""
        if self.tokens is not None:
            return self.names.take("embed", self.tokens.shape[1], f"width of the embedding `{parent(self.tokens.fqn)}`")
        norms = [t.shape[0] for t in self.facts.tensors if len(t.shape) == 1 and self._is(t, "Norm")]
        if not norms:
            return None
        return self.names.take("embed", max(norms, key=norms.count), "the size that most norms have")

    @cached_property
    def vocab(self) -> str | None:
        """The name of the vocabulary's size, when there is a token embedding."""
        if self.tokens is None:
            return None
        return self.names.take("vocab", self.tokens.shape[0], f"rows of the embedding `{parent(self.tokens.fqn)}`")

    def _is(self, fact: TensorFact, kind: str) -> bool:
        return kind in self.facts.modules[parent(fact.fqn)].kind

    def _width(self) -> int | None:
        return None if self.embed is None else self.names.sizes[self.embed]

    def _parameter(self, fact: TensorFact) -> Guess:
        module = self.facts.modules[parent(fact.fqn)]
        if "Embedding" in module.kind and len(fact.shape) == 2:
            return self._table(fact)
        if len(fact.shape) == 2 or (len(fact.shape) == 1 and self._linear(fact) is not None):
            return self._matrix(fact)
        return Guess(tuple(self._by_size(fact, i) for i in range(len(fact.shape))), f"sizes of {module.kind}")

    def _table(self, fact: TensorFact) -> Guess:
        rows = fact.shape[0]
        width = self._by_size(fact, 1, word=f"{_own(fact)}_width")
        if fact == self.tokens and self.vocab is not None:
            return Guess(((self.vocab,), width), "a row for each token")
        word = "positions" if _POSITIONS.search(fact.fqn) else _own(fact)
        name = self.names.take(word, rows, f"rows of the embedding `{parent(fact.fqn)}`")
        return Guess(((name,), width), "a row for each position" if word == "positions" else "rows of an embedding")

    def _linear(self, fact: TensorFact) -> TensorFact | None:
        """The weight beside a bias."""
        name = fact.fqn.removesuffix("bias") + "weight"
        other = self.tensors.get(name)
        fits = other is not None and len(other.shape) == 2 and name != fact.fqn
        return other if fits and fact.fqn.endswith("bias") else None

    def _matrix(self, fact: TensorFact) -> Guess:
        """(out, in) of a Linear, and the bias of one: its out."""
        weight = self._linear(fact) or fact
        flipped = self.facts.modules[parent(fact.fqn)].kind == "Conv1D"
        out, in_ = reversed(weight.shape) if flipped else weight.shape
        rows, columns, why = self._sides(weight, out, in_)
        if len(fact.shape) == 1:
            return Guess((rows,), why)
        return Guess((columns, rows) if flipped else (rows, columns), why)

    def _sides(self, weight: TensorFact, out: int, in_: int) -> tuple[Factors, Factors, str]:
        width = self._width()
        if width is None or self.embed is None:
            return self._attributes(weight, out, in_)
        embed = (self.embed,)
        inside = self._inside_attention(weight.fqn)
        if inside is not None and _OUTPUT.search(_own(weight)) and out == width:
            return embed, self._heads(weight, in_, inside), "attention's way out"
        if inside is not None and in_ == width:
            return self._heads(weight, out, inside), embed, "attention's way in"
        scores = self.vocab is not None and out == self.names.sizes[self.vocab] and in_ == width
        if scores and self.vocab is not None and not FEED_FORWARD.search(weight.fqn):
            return (self.vocab,), embed, "a score for each token"
        if out != width and in_ == width:
            return self._inner(weight, out), embed, "from the model's width"
        if in_ != width and out == width:
            return embed, self._inner(weight, in_), "to the model's width"
        if out == in_ == width:
            name = self.names.take(f"{_own(weight)}_out", out, f"rows of `{weight.fqn}`; as many as its columns")
            return (name,), embed, "both sides have the model's width"
        return self._attributes(weight, out, in_)

    def _attributes(self, weight: TensorFact, out: int, in_: int) -> tuple[Factors, Factors, str]:
        """Named by the module's own words for its sides."""
        rows, columns = self._by_size(weight, 0, size=out), self._by_size(weight, 1, size=in_)
        return rows, columns, "sizes alone"

    def _inner(self, weight: TensorFact, size: int) -> Factors:
        if FEED_FORWARD.search(weight.fqn) or any(part.isdigit() for part in weight.fqn.split(".")):
            return (self.names.take("mlp", size, f"the other side of `{weight.fqn}`"),)
        return (self.names.take(_own(weight), size, f"the other side of `{weight.fqn}`"),)

    def _inside_attention(self, fqn: str) -> str | None:
        """The nearest module around a tensor whose name or class speaks of attention."""
        while fqn:
            fqn = parent(fqn)
            if ATTENTION.search(fqn.rpartition(".")[2]) or ATTENTION.search(self.facts.modules[fqn].kind):
                return fqn
        return None

    def _heads(self, weight: TensorFact, size: int, attention: str) -> Factors:
        """The side of an attention weight that is made of heads."""
        heads = self._number(weight, _HEADS)
        kv_heads = self._number(weight, _KV_HEADS)
        width = self._width() or 0
        head_dim = self._number(weight, _HEAD_DIM) or (width // heads if heads else None)
        if not heads or not head_dim:
            return (
                self.names.take(f"{_own(weight)}_heads", size, f"a side of `{weight.fqn}`: heads, of a count unknown"),
            )
        return self._counted(weight, size, heads, kv_heads, head_dim)

    def _counted(self, weight: TensorFact, size: int, heads: int, kv_heads: int | None, head_dim: int) -> Factors:
        take, found = self.names.take, f"of `{parent(weight.fqn)}` or around it"
        if _FUSED.search(weight.fqn) and size == (heads + 2 * (kv_heads or heads)) * head_dim:
            groups = (kv_heads or heads, heads // (kv_heads or heads) + 2)
            dim = take("head_dim", head_dim, found)
            parts = take("qkv", groups[1], "the queries of a group, its key and its value")
            if kv_heads:
                return (take("kv_heads", kv_heads, found), parts, dim)
            return (parts, take("heads", heads, found), dim)
        if size == heads * head_dim and not (kv_heads and _KEYS.search(_own(weight))):
            return (take("heads", heads, found), take("head_dim", head_dim, found))
        if kv_heads and size == kv_heads * head_dim:
            return (take("kv_heads", kv_heads, found), take("head_dim", head_dim, found))
        return (take(f"{_own(weight)}_heads", size, f"a side of `{weight.fqn}`"),)

    def _number(self, fact: TensorFact, words: Iterable[str]) -> int | None:
        """An attribute of the module that holds a tensor, or of the nearest around it."""
        for module in _upwards(parent(fact.fqn)):
            holder = self.facts.modules[module]
            numbers = {**holder.config, **holder.numbers}
            for word in words:
                if numbers.get(word, 0) > 0:
                    return numbers[word]
        return None

    def _buffer(self, fact: TensorFact) -> Guess:
        dims: list[Factors] = []
        for dim, size in enumerate(fact.shape):
            if dim == 0 and len(fact.shape) > 1 and size > 64 and _TABLE.search(fact.fqn):
                dims.append((self.names.take("positions", size, f"rows of `{fact.fqn}`"),))
            elif _ROTARY.search(fact.fqn):
                dims.append((self.names.take("rope", size, f"dim {dim} of `{fact.fqn}`"),))
            else:
                dims.append(self._by_size(fact, dim))
        return self._apart(Guess(tuple(dims), "sizes of a buffer"), fact)

    def _by_size(self, fact: TensorFact, dim: int, *, word: str | None = None, size: int | None = None) -> Factors:
        """The width, a known name of exactly this size, the module's own word for it, or a new name."""
        size = fact.shape[dim] if size is None else size
        if self.embed is not None and size == self._width():
            return (self.embed,)
        known = [n for n, s in self.names.sizes.items() if s == size and n not in ("heads", "kv_heads", "qkv")]
        if known and size > 1:
            return (known[0],)
        own = [n for n, value in self.facts.modules[parent(fact.fqn)].numbers.items() if value == size]
        new = word or (own[0 if dim else -1] if own else f"{_own(fact)}_{dim}" if len(fact.shape) > 1 else _own(fact))
        return (self.names.take(new, size, f"dim {dim} of `{fact.fqn}`"),)


def guesser(facts: Facts, lists: Iterable[str]) -> Guesser:
    """Ready to guess; `lists` are names of layer counts, which no dimension may have."""
    reserved = frozenset({*RUN_SIZES, "tied", *lists})
    found = Guesser(facts, Names(reserved=reserved), facts.by_fqn)
    assert found.embed is None or found.embed in found.names.sizes  # asked first: the best known names
    assert found.vocab is None or found.vocab in found.names.sizes
    return found


def _upwards(module: str) -> Iterator[str]:
    yield module
    while module:
        module = parent(module)
        yield module


def _own(fact: TensorFact) -> str:
    """What a tensor is called: its own name, or its module's where that says more."""
    *modules, name = fact.fqn.split(".")
    stem = re.sub(r"_?(weight|bias)$", "", name)
    words = [part for part in (stem, *reversed(modules)) if part and not part.isdigit()]
    return words[0] if words else name
