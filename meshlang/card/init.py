"""A first card for a real model, as text. Each guess is marked, for a reader to confirm or to change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from .borders import Border, Draft, borders, flows, head_of, port_text
from .dims import dims_text
from .facts import Facts
from .foldnames import element, fold_names, like, list_sizes, stars
from .guess import Guess, Guesser, guesser
from .model import RUN_SIZES, above, parent
from .read import VERSION

_CUT = re.compile(r"(vocab|mlp|heads|kv_heads)(_\d+)?")

#: (key, value, why it is a guess or "").
Line = tuple[str, str, str]


def init_card(facts: Facts, name: str, flavor: str) -> str:
    """The text of a card that reads, and that agrees with the model; for people to go over.

    Args:
        name: of the card. flavor: the name of the sizes that this model has.
    """
    lists = list_sizes(facts)
    ask = guesser(facts, lists)
    draft = Draft(facts=facts, lists=lists, guesser=ask, guesses=_guesses(facts, ask))
    found = borders(draft)
    tables = (*_tensors(draft, "parameter"), *_tensors(draft, "buffer"), *_activations(draft, found))
    head = head_of(draft, found)
    flow: list[Line] = [(a, _quoted(b), "the same value, by its place") for a, b in flows(draft, found).items()]
    used = _used(draft, found)
    parts = (
        f"# A first card of {_plain(name)}. Each line with a guess wants a look; its remark goes when it is right.",
        f"card  = {VERSION}\nmodel = {_quoted(name)}",
        *_top(draft, used),
        _flavor(draft, flavor, used, tables),
        _table("param", _tensors(draft, "parameter")),
        _table("buffer", _tensors(draft, "buffer")),
        _table("activation", _activations(draft, found)),
        _table("flow", flow),
        _table("same", [("heads", '"kv_heads"', "groups of heads")] if {"heads", "kv_heads"} <= used else []),
        _table("tied", [(first, _quoted(second), "") for first, second in _ties(facts)]),
        _loss(found[head]) if head is not None else "",
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _top(draft: Draft, used: frozenset[str]) -> Iterator[str]:
    known = (*RUN_SIZES, *draft.guesser.names.sizes)
    whole = [word for word in known if word in used and not _CUT.fullmatch(word)]
    yield _list("whole", whole, "all but the names that tensor parallelism is used to cut")
    yield _list("units", _units(draft), "each layer is gathered as one, and so is what stands behind them")


def _flavor(draft: Draft, flavor: str, used: frozenset[str], tables: Iterable[Line]) -> str:
    """Counts of layers that some `*` needs, sizes of names that are used."""
    patterns = (*(line[0] for line in tables), *_units(draft))
    counts = dict.fromkeys(size for pattern in patterns for size in stars(pattern))
    names = draft.guesser.names
    lines: list[Line] = [(word, str(draft.lists[word]), "") for word in counts]
    lines += [(word, str(size), names.why[word]) for word, size in names.sizes.items() if word in used]
    lines += [("tied", "true", "")] if _ties(draft.facts) else []
    header = f"flavor.{_bare(flavor)}"
    return _table(header, lines, quote=False) or f"[{header}]"


def _guesses(facts: Facts, ask: Guesser) -> dict[str, Guess]:
    """Fqn -> guess; tied names share the first one's."""
    found: dict[str, Guess] = {}
    for tensor in facts.tensors:
        first = next((name for name in tensor.tied if name in found), None) if tensor.kind == "parameter" else None
        found[tensor.fqn] = found[first] if first is not None else ask.tensor(tensor)
    return found


def _used(draft: Draft, found: Mapping[str, Border]) -> frozenset[str]:
    tensors = {name for guess in draft.guesses.values() for factors in guess.dims for name in factors}
    return frozenset(tensors | {name for border in found.values() for name in border.names})


def _tensors(draft: Draft, kind: str) -> list[Line]:
    """A line for each kind of module that holds such tensors."""
    held: dict[str, list[str]] = {}
    for tensor in draft.facts.tensors:
        if tensor.kind == kind:
            held.setdefault(parent(tensor.fqn), []).append(tensor.fqn)
    lines: dict[str, tuple[str, str]] = {}
    for module, fqns in held.items():
        dims = {fqn.rpartition(".")[2]: f'"{dims_text(draft.guesses[fqn].dims)}"' for fqn in fqns}
        why = "; ".join(dict.fromkeys(draft.guesses[fqn].why for fqn in fqns))
        table = "{ " + ", ".join(f"{_bare(name)} = {text}" for name, text in dims.items()) + " }"
        lines[module] = (dims["weight"] if list(dims) == ["weight"] else table, why)
    return _folded(lines, draft.lists)


def _activations(draft: Draft, found: Mapping[str, Border]) -> list[Line]:
    return _folded({module: (port_text(border), border.why) for module, border in found.items()}, draft.lists)


def _folded(lines: Mapping[str, tuple[str, str]], lists: Mapping[str, int]) -> list[Line]:
    """Equal lines of many layers as one; the remark is the first one's. In the order of the model."""
    groups: dict[str, list[str]] = {}
    for module, (text, _) in lines.items():
        groups.setdefault(text, []).append(module)
    order = {module: place for place, module in enumerate(lines)}
    found: list[tuple[int, Line]] = []
    for text, modules in groups.items():
        for pattern in fold_names(modules, lists):
            first = next(module for module in modules if like(module, pattern))
            found.append((order[first], (pattern, text, lines[first][1])))
    return [line for _, line in sorted(found)]


def _units(draft: Draft) -> list[str]:
    """Each layer, and what holds parameters beside the layers; what comes behind the last layer is one."""
    holding = dict.fromkeys(parent(t.fqn) for t in draft.facts.tensors if t.kind == "parameter")
    layers = {layer for module in holding if (layer := element(module, draft.lists)) is not None}
    shells = {outer for layer in layers for outer in above(layer)} or {""}
    order = [unit for unit in dict.fromkeys(_unit(module, shells, draft) for module in holding) if unit is not None]
    last = max((place for place, module in enumerate(order) if module in layers), default=len(order))
    behind = order[last + 1 :]
    return [*fold_names(order[: last + 1], draft.lists), *([" ".join(behind)] if behind else [])]


def _unit(module: str, shells: set[str], draft: Draft) -> str | None:
    """The layer that a module lies in, or the widest module around it that has no layer inside; else None."""
    layer = element(module, draft.lists)
    inner = [each for each in (module, *above(module)) if each not in shells]
    return layer or (inner[-1] if inner else None)


def _ties(facts: Facts) -> list[tuple[str, str]]:
    """Each name of a tied parameter with the next."""
    pairs: dict[str, str] = {}
    for tensor in facts.tensors:
        names = [tensor.fqn, *tensor.tied] if tensor.kind == "parameter" else []
        order = [t.fqn for t in facts.tensors if t.fqn in names] if len(names) > 1 else []
        pairs.update(pairwise(order))
    return list(pairs.items())


def _loss(head: Border) -> str:
    name = head.output[-1][0]
    lines: list[Line] = [("logits", f'"{dims_text(head.output)}"', "the head's output"), ("vocab", f'"{name}"', "")]
    return _table("loss", lines, quote=False)


def _table(name: str, lines: list[Line], *, quote: bool = True) -> str:
    if not lines:
        return ""
    keys = [_quoted(key) if quote else _bare(key) for key, _, _ in lines]
    width = max(len(key) for key in keys)
    rows = [f"{key:<{width}} = {value}{_remark(why)}" for key, (_, value, why) in zip(keys, lines, strict=True)]
    return "\n".join((f"[{name}]", *rows))


def _list(key: str, words: list[str], why: str) -> str:
    return f"{key} = {_array(words)}{_remark(why)}" if words else ""


def _array(words: Iterable[str]) -> str:
    return f"[{', '.join(_quoted(word) for word in words)}]"


def _remark(why: str) -> str:
    return f"  # guess: {_plain(why)}" if why else ""


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _quoted(text: str) -> str:
    return json.dumps(text)


def _bare(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _quoted(key)
