"""What can happen to a text: a letter, a value, a line or some bytes are no longer what they were."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator

from meshlang.diagnostics import Bag
from meshlang.language.toml import Node, scan
from meshlang.source import Source, Span


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


LITERALS = (
    *("0", "1", "-1", "3", "7", "1.5", "inf", "nan", "true", "false", '""', '"tp"', '"whole"', '"rest"', '"R"'),
    *('"S(1)"', '"2 GiB"', "[]", '["tp"]', '["tp", "dp"]', "[[]]", "[1]", "{}", "{ a = 1 }", '{ tp = "R" }'),
    *("1979-05-27", "07:32:00", "9223372036854775807", '"layers.*"', '"**"', '"stored"', '"llama/tiny"', "0x10"),
    *('"batch seq embed"', '"(heads head_dim) embed"', '"embed embed"', '"("', '{ output = "seq" }', '"{a,b}.[0-9]"'),
)


def retyped(draw: random.Random, text: str) -> str:
    """A value replaced by one of another type."""
    span = draw.choice(list(_values(scan(Source("text", text), Bag()))))
    return text[: span.start] + draw.choice(LITERALS) + text[span.end :]


def _values(node: Node | None) -> Iterator[Span]:
    inner = node.value if node is not None and isinstance(node.value, (dict, tuple)) else ()
    for each in inner.values() if isinstance(inner, dict) else inner:
        if not each.span.text.startswith("[") or isinstance(each.value, tuple):
            yield each.span
        yield from _values(each)


def renamed(draw: random.Random, text: str) -> str:
    """A key with one letter changed, or with another key's name."""
    spans = [span for span in _keys(scan(Source("text", text), Bag())) if any(map(str.isalnum, span.text))]
    span, other = draw.choice(spans), draw.choice(spans)
    word = other.text if draw.randrange(2) else one_letter(draw, span.text)
    return text[: span.start] + word + text[span.end :]


def _keys(node: Node | None) -> Iterator[Span]:
    inner = node.value if node is not None and isinstance(node.value, (dict, tuple)) else ()
    for each in inner.values() if isinstance(inner, dict) else inner:
        if each.key is not None:
            yield each.key
        yield from _keys(each)


def truncated(draw: random.Random, text: str) -> str:
    """A text that ends early, or begins late."""
    at = draw.randrange(len(text))
    return text[:at] if draw.randrange(2) else text[at:]


def relined(draw: random.Random, text: str) -> str:
    """Lines left out, doubled or swapped."""
    lines = text.splitlines(keepends=True)
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


def bytes_changed(draw: random.Random, text: str) -> bytes:
    """Some bytes replaced, put in or left out."""
    data = bytearray(text.encode())
    for _ in range(draw.randrange(1, 9)):
        at = draw.randrange(len(data))
        some = bytes(draw.randrange(256) for _ in range(draw.randrange(3)))
        data[at : at + draw.randrange(3)] = some
    return bytes(data)


def relettered(draw: random.Random, text: str) -> str:
    """One letter of any word changed, in keys, values and comments."""
    at = draw.choice([i for i, char in enumerate(text) if char.isalnum()])
    return text[:at] + draw.choice(string.ascii_letters + string.digits) + text[at + 1 :]


Damage = Callable[[random.Random, str], "str | bytes"]

#: Those without a promise but one: findings that can be shown, or a plan.
DAMAGES: tuple[Damage, ...] = (retyped, truncated, relined, bytes_changed, relettered)


def made(damage: Damage, draw: random.Random, text: str) -> bytes:
    """The bytes of a damaged text."""
    found = damage(draw, text)
    return found if isinstance(found, bytes) else found.encode()
