"""Boundaries for the modules of a real model, guessed from their classes and their forwards' arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from .dims import dims_text
from .expand import choices
from .facts import Facts, ModuleFact
from .foldnames import element, fold_names, inside, like, outermost
from .guess import ATTENTION, FEED_FORWARD, Guess, Guesser
from .model import Factors, above, around, parent

_NO_VALUE = re.compile(r"mask|pos|cache|freq|past|causal|weights$", re.IGNORECASE)

#: What most modules of a transformer take and give.
_ROW = (("batch",), ("seq",))


@dataclass(frozen=True, kw_only=True)
class Border:
    """A boundary to be written, and what makes one think so."""

    inputs: tuple[tuple[str, tuple[Factors, ...]], ...]
    output: tuple[Factors, ...]
    whole: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    why: str

    @property
    def names(self) -> frozenset[str]:
        """Every dimension name in it."""
        dims = (*(d for _, ds in self.inputs for d in ds), *self.output)
        return frozenset(name for factors in dims for name in factors)


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A model, and what is guessed of it so far.

    Attributes:
        lists: sizes that a `*` may count to.
        guesses: the dims of each tensor, by its fqn.
    """

    facts: Facts
    lists: Mapping[str, int]
    guesser: Guesser
    guesses: Mapping[str, Guess]

    @property
    def width(self) -> tuple[Factors, ...]:
        """The dim that runs through the model, or none."""
        return () if self.guesser.embed is None else ((self.guesser.embed,),)


def borders(draft: Draft) -> dict[str, Border]:
    """Module -> its boundary: each module that computes with weights, and those around them that matter.

    A module that holds parameters itself stands for all inside it: nothing else could say over
    which axes their gradients are sums.
    """
    modules, held = draft.facts.modules, _held(draft.facts)
    ends = outermost(held)
    found = {module: _end(module, draft, _below(module, held)) for module in ends}
    for module in _outer(draft.facts, ends) if draft.width else ():
        found[module] = _around(modules[module], module, (*_ROW, *draft.width))
    if "" not in found and draft.width:
        found[""] = _root(draft, found)
    return {module: found[module] for module in modules if module in found}


def _held(facts: Facts) -> dict[str, tuple[str, ...]]:
    """Module -> its own parameters, for each module that has some."""
    found: dict[str, list[str]] = {}
    for tensor in facts.tensors:
        if tensor.kind == "parameter":
            found.setdefault(parent(tensor.fqn), []).append(tensor.fqn)
    return {module: tuple(names) for module, names in found.items()}


def _below(module: str, held: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Every parameter in a module or inside it."""
    return tuple(fqn for holder, fqns in held.items() if inside(holder, {module}) for fqn in fqns)


def _outer(facts: Facts, ends: tuple[str, ...]) -> tuple[str, ...]:
    """Attention and feed-forward modules around these, and attention without weights."""
    around_ends = {module for end in ends for module in above(end)}
    found = []
    for fqn, module in facts.modules.items():
        name = f"{fqn.rpartition('.')[2]} {module.kind}"
        if not fqn or not module.inputs or inside(fqn, ends):
            continue
        if ATTENTION.search(module.kind) or (
            fqn in around_ends and (ATTENTION.search(name) or FEED_FORWARD.search(name))
        ):
            found.append(fqn)
    return outermost(found)


def _values(module: ModuleFact) -> tuple[str, ...]:
    """Arguments that are values, not masks or positions."""
    return tuple(name for name in module.required or module.inputs[:1] if not _NO_VALUE.search(name))


def _end(module: str, draft: Draft, own: tuple[str, ...]) -> Border:
    fact = draft.facts.modules[module]
    weight = draft.guesses.get(f"{module}.weight" if module else "weight")
    if ATTENTION.search(fact.kind):
        return _attention(fact, module, _width(draft, own))
    known = None if weight is None or len(own) > 2 else _known(module, fact, weight.dims, draft)
    return known or _unknown(fact, draft, own)


def _known(module: str, fact: ModuleFact, dims: tuple[Factors, ...], draft: Draft) -> Border | None:
    """Embedding, Linear and norm, by the dims of their weights."""
    values = _values(fact)[:1]
    if "Embedding" in fact.kind and len(dims) == 2:
        rows = (("seq",),) if dims[0] == ("positions",) else _ROW
        return Border(inputs=_each(values, rows), output=(*rows, dims[1]), why="an embedding looks rows up")
    if ("Linear" in fact.kind or fact.kind == "Conv1D") and len(dims) == 2:
        out, in_ = reversed(dims) if fact.kind == "Conv1D" else dims
        added = ("bias",) if f"{module}.bias".removeprefix(".") in draft.guesses else ()
        return Border(inputs=_each(values, (*_ROW, in_)), output=(*_ROW, out), added=added, why="columns in, rows out")
    if "Norm" in fact.kind and len(dims) == 1 and not fact.kind.startswith(("Batch", "Instance", "Group")):
        ports = (*_ROW, *_heads_of(module, dims, draft), dims[0])
        return Border(inputs=_each(values, ports), output=ports, whole=dims[0], why="a norm needs all it norms over")
    return None


def _heads_of(module: str, dims: tuple[Factors, ...], draft: Draft) -> tuple[Factors, ...]:
    """A norm over the numbers of one head works on every head."""
    names = draft.guesser.names.sizes
    if dims != (("head_dim",),) or "heads" not in names:
        return ()
    keys = module.rpartition(".")[2].startswith("k") and "kv_heads" in names
    return (("kv_heads",),) if keys else (("heads",),)


def _each(names: Iterable[str], dims: tuple[Factors, ...]) -> tuple[tuple[str, tuple[Factors, ...]], ...]:
    return tuple((name, dims) for name in names)


def _width(draft: Draft, own: tuple[str, ...]) -> tuple[Factors, ...]:
    """The last dim of what a module takes: the model's width, else that of its own first tensor."""
    return draft.width or next((draft.guesses[fqn].dims[-1:] for fqn in own), ())


def _attention(fact: ModuleFact, module: str, width: tuple[Factors, ...]) -> Border:
    dims = (*_ROW, *width)
    why = f"`{module}` attends: each token needs the whole sequence"
    return Border(inputs=_each(_values(fact), dims), output=dims, whole=("seq",), why=why)


def _around(fact: ModuleFact, module: str, dims: tuple[Factors, ...]) -> Border:
    if ATTENTION.search(f"{module.rpartition('.')[2]} {fact.kind}"):
        return _attention(fact, module, dims[-1:])
    return Border(inputs=_each(_values(fact)[:1], dims), output=dims, why="a feed-forward works on each token")


def _unknown(fact: ModuleFact, draft: Draft, own: tuple[str, ...]) -> Border:
    """A module that nothing is known of: nothing that it computes with may be cut inside."""
    tokens = draft.guesser.tokens
    width = _width(draft, own)
    taken = _ROW if tokens is not None and tokens.fqn in own else (*_ROW, *width)
    names = tuple(dict.fromkeys(factors[0] for fqn in own for factors in draft.guesses[fqn].dims))
    return Border(
        inputs=_each(_values(fact)[:1], taken),
        output=(*_ROW, *width),
        whole=tuple(dict.fromkeys(("seq", *names))),
        why=f"what `{fact.kind}` computes is not known; nothing is cut inside it",
    )


def _root(draft: Draft, found: Mapping[str, Border]) -> Border:
    """The whole model: tokens or rows in, scores or rows out."""
    rows = (*_ROW, *draft.width)
    head = head_of(draft, found)
    taken = _ROW if draft.guesser.tokens is not None else rows
    inputs = _each(_values(draft.facts.modules[""])[:1], taken)
    output = rows if head is None else found[head].output
    return Border(inputs=inputs, output=output, why="what the model takes and gives")


def head_of(draft: Draft, found: Mapping[str, Border]) -> str | None:
    """The last module outside of the layers that scores each token."""
    scores = (*_ROW, (draft.guesser.vocab or "",))
    heads = [m for m, border in found.items() if m and border.output == scores and element(m, draft.lists) is None]
    return heads[-1] if heads else None


def flows(draft: Draft, found: Mapping[str, Border]) -> dict[str, str]:
    """Port -> the port with the same value: in and out of the model, and out of modules around others."""
    pairs: dict[str, str] = {}
    root, tokens, head = found.get(""), draft.guesser.tokens, head_of(draft, found)
    if root is None:
        return pairs
    first = "" if tokens is None else parent(tokens.fqn)
    if first in found and around(first, found) == "" and root.inputs and found[first].inputs:
        pairs[f"input.{root.inputs[0][0]}"] = f"{first} input.{found[first].inputs[0][0]}"
    for inner, outer in _ways_out(draft, found):
        pairs[f"{inner} output"] = f"{outer} output"
    if head and around(head, found) == "":
        pairs[f"{head} output"] = "output"
    return pairs


def _ways_out(draft: Draft, found: Mapping[str, Border]) -> Iterator[tuple[str, str]]:
    """(module, the one around it) where only the first gives what the second gives, with stars for layers."""
    givers: dict[str, list[str]] = {}
    for module, border in found.items():
        outer = around(module, found)
        if outer and found[outer].output == border.output:
            givers.setdefault(outer, []).append(module)
    ways = {inner[0]: outer for outer, inner in givers.items() if len(inner) == 1}
    for pattern in fold_names(ways, draft.lists):
        for inner in choices(pattern):
            deep = next(outer.count(".") + 1 for way, outer in ways.items() if like(way, inner))
            yield inner, ".".join(inner.split(".")[:deep])


def port_text(border: Border) -> str:
    """The boundary as a card writes it."""
    parts = [f'input.{name} = "{dims_text(dims)}"' for name, dims in border.inputs]
    parts.append(f'output = "{dims_text(border.output)}"')
    for key, words in (("whole", border.whole), ("added", border.added)):
        if words:
            names = ", ".join(f'"{name}"' for name in words)
            parts.append(f"{key} = [{names}]")
    return "{ " + ", ".join(parts) + " }"
