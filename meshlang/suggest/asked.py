"""What the command line asks for, as text that findings point at -> numbers, or findings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ..diagnostics import Bag, Diagnostic, Label
from ..language.leaves import memory, whole
from ..language.shape import Bytes, Whole
from ..language.toml import Node, scan
from ..source import Source, Span

#: Where findings on options stand.
NAME = "the command line"
#: More than anyone has, or runs.
MOST = {"ranks": 1 << 20, "seq": 1 << 27, "batch": 1 << 24, "ranks_per_node": 1 << 10, "block_size": 1 << 20}
#: Tokens of a step where nobody says: about as many as Llama 3 began with, at most as many as it ended with
#: (The Llama 3 Herd of Models, section 3.4.1).
TOKENS, MOST_TOKENS = 4 << 20, 16 << 20


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """Options as numbers, and where each stands."""

    values: Mapping[str, int]
    spans: Mapping[str, Span]


def read_numbers(options: Mapping[str, str], bag: Bag) -> Numbers | None:
    """Ranks, memory, lengths; None with findings."""
    lines = "\n".join(f"{name} = {_spelled(text)}" for name, text in options.items()) + "\n"
    root = scan(Source(name=NAME, text=lines), bag)
    assert root is not None
    nodes: Mapping[str, Node] = root.value
    values: dict[str, int] = {}
    for name, node in nodes.items():
        found = _number(name, node, bag)
        if found is not None:
            values[name] = found
    if len(bag):
        return None
    return Numbers(values=values, spans={name: node.span for name, node in nodes.items()})


def _spelled(text: str) -> str:
    plain = text.isascii() and text.isdecimal() and (text == "0" or not text.startswith("0")) and len(text) < 18
    return text if plain else json.dumps(text, ensure_ascii=True)


def _number(name: str, node: Node, bag: Bag) -> int | None:
    if name == "memory":
        return memory(Bytes(), node, name, bag)
    return whole(Whole(least=1, most=MOST[name]), node, name, bag)


def usual_batch(ranks: int, seq: int) -> int:
    """Sequences of a step where nobody says: for each rank as many, of about `TOKENS` in all."""
    batch = ranks
    while batch * seq < TOKENS:
        batch *= 2
    while batch * seq > MOST_TOKENS and batch % 2 == 0:
        batch //= 2
    return batch


def part_of_node(numbers: Numbers, bag: Bag) -> None:
    """Ranks fill whole nodes, or are on one."""
    ranks, node = numbers.values["ranks"], numbers.values["ranks_per_node"]
    if ranks > node and ranks % node:
        bag.add(
            Diagnostic(
                code="leaves-node",
                message=f"{ranks} ranks do not fill nodes of {node}",
                label=Label(span=numbers.spans["ranks"], text=f"the last node would have {ranks % node}"),
                notes=("`--ranks-per-node` says how many share a node",),
            )
        )


def in_blocks(numbers: Numbers, usual: int, model: str, streams: bool, bag: Bag) -> None:
    """A sequence is whole blocks, where the model has two streams; elsewhere no block has a size."""
    size, seq = numbers.values.get("block_size"), numbers.values["seq"]
    if size is not None and not streams:
        message = f"`block_size` decides nothing: `{model}` has no blocks"
        bag.add(Diagnostic(code="decides-nothing", message=message, label=Label(span=numbers.spans["block_size"])))
    if streams and seq % (size or usual):
        bag.add(
            Diagnostic(
                code="block-size",
                message=f"`seq` = {seq} does not divide into blocks of {size or usual} tokens",
                label=Label(span=numbers.spans["seq"]),
                notes=("`--block-size` says how many tokens a block has",),
            )
        )
