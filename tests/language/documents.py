"""Random TOML: a tree of plain values, and a text that spells it in one of many ways."""

from __future__ import annotations

import datetime
import re
import string
from random import Random
from typing import Any

KEYS = ("a", "b-c", "D_1", "1", "", "two words", "dot.ted", 'quo"te', "it's", "\u03c0", "back\\slash", "tab\t", "#")
WORDS = (
    "",
    "x",
    "two\nlines",
    "tab\t",
    'say "hi"',
    "it's",
    "back\\slash",
    "\u5bbd",
    "\x1b[0m",
    "#no",
    "]}",
    '"""',
    "'''",
)
DATES = (
    datetime.datetime(1979, 5, 27, 7, 32, 5),
    datetime.datetime(1979, 5, 27, 7, 32, tzinfo=datetime.UTC),
    datetime.date(2026, 2, 28),
    datetime.time(23, 59),
)
BARE = re.compile(r"[A-Za-z0-9_-]+")


def tree(rng: Random, depth: int = 0) -> dict[str, Any]:
    """A table of up to four random keys."""
    return {rng.choice(KEYS): _value(rng, depth + 1) for _ in range(rng.randint(0 if depth else 1, 4))}


def _value(rng: Random, depth: int) -> Any:
    kind = rng.random()
    if depth < 4 and kind < 0.3:
        return tree(rng, depth)
    if depth < 4 and kind < 0.4:
        return [tree(rng, depth) for _ in range(rng.randint(1, 3))]
    if depth < 4 and kind < 0.5:
        return [_value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    numbers = (0, -7, 10**6, 2**63 - 1, 0.5, -1e300, float("inf"))
    return rng.choice((rng.choice(WORDS), rng.choice(numbers), rng.choice((True, False)), rng.choice(DATES)))


def spell(rng: Random, values: dict[str, Any]) -> str:
    """A text that tomli reads as `values`."""
    text = "".join(_section(rng, values, ()))
    return text.replace("\n", "\r\n") if rng.random() < 0.2 and "two\r\nlines" not in text else text


def _section(rng: Random, table: dict[str, Any], path: tuple[str, ...]) -> list[str]:
    """Pairs of one table, then the tables that have headers of their own."""
    pairs, later = [], []
    for name, value in table.items():
        if (isinstance(value, dict) and rng.random() < 0.6) or (_is_rows(value) and rng.random() < 0.6):
            later.append((name, value))
        elif isinstance(value, dict) and value and rng.random() < 0.6:
            pairs += _dotted(rng, [name], value)
        else:
            pairs.append(f"{_blank(rng)}{_key(rng, name)}{_equals(rng)}{_spelled(rng, value)}{_end(rng)}")
    found = pairs
    for name, value in later:
        inner = (*path, name)
        for each in value if isinstance(value, list) else [value]:
            body = _section(rng, each, inner)
            alone = bool(body) and body[0].startswith("[") and not isinstance(value, list) and rng.random() < 0.5
            found += ([] if alone else [_header(rng, inner, isinstance(value, list))]) + body
    return found


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _dotted(rng: Random, path: list[str], table: dict[str, Any]) -> list[str]:
    """`a.b = value` lines for a table that is not empty."""
    found = []
    for name, value in table.items():
        if isinstance(value, dict) and value and rng.random() < 0.5:
            found += _dotted(rng, [*path, name], value)
        else:
            key = _joined(rng, [*path, name])
            found.append(f"{_blank(rng)}{key}{_equals(rng)}{_spelled(rng, value)}{_end(rng)}")
    return found


def _joined(rng: Random, path: list[str]) -> str:
    dot = rng.choice((".", " .\t", ". "))
    return dot.join(_key(rng, name) for name in path)


def _header(rng: Random, path: tuple[str, ...], many: bool) -> str:
    name = f"{_blank(rng)}{_joined(rng, list(path))}{_blank(rng)}"
    return f"[[{name}]]{_end(rng)}" if many else f"[{name}]{_end(rng)}"


def _blank(rng: Random) -> str:
    return rng.choice(("", "", " ", "\t", "  "))


def _equals(rng: Random) -> str:
    return rng.choice(("=", " = ", "\t= "))


def _end(rng: Random) -> str:
    return _blank(rng) + rng.choice(("\n", "\n", "\n\n", "# ]}\"' = [x]\n", "\n  # note\n"))


def _gap(rng: Random) -> str:
    """Between the parts of an array or an inline table."""
    return rng.choice(("", " ", "\n", " # ], }\n\t"))


def _key(rng: Random, name: str) -> str:
    if BARE.fullmatch(name) and rng.random() < 0.8:
        return name
    return f"'{name}'" if "'" not in name and name.isprintable() and rng.random() < 0.5 else _basic(rng, name)


def _basic(rng: Random, text: str) -> str:
    return '"' + "".join(_escaped(rng, char) for char in text) + '"'


def _escaped(rng: Random, char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char in string.printable and char.isprintable() and rng.random() < 0.9:
        return char
    code = ord(char)
    return rng.choice((f"\\u{code:04x}", f"\\U{code:08x}", *((f"\\x{code:02x}",) if code < 256 else ())))


def _spelled(rng: Random, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        pairs = _pairs(rng, [], value)
        return _enclosed(rng, "{", pairs, "}")
    if isinstance(value, list):
        return _enclosed(rng, "[", [_spelled(rng, each) for each in value], "]")
    if isinstance(value, str):
        return _text(rng, value)
    if isinstance(value, int):
        return rng.choice((f"{value:_}", f"{value}", f"{value:#x}" if value >= 0 else f"{value}"))
    return repr(value) if isinstance(value, float) else value.isoformat(**_separator(rng, value))


def _separator(rng: Random, value: Any) -> dict[str, str]:
    return {"sep": rng.choice("T ")} if isinstance(value, datetime.datetime) else {}


def _pairs(rng: Random, path: list[str], table: dict[str, Any]) -> list[str]:
    found = []
    for name, value in table.items():
        if isinstance(value, dict) and value and rng.random() < 0.4:
            found += _pairs(rng, [*path, name], value)
        else:
            found.append(f"{_joined(rng, [*path, name])}{_equals(rng)}{_spelled(rng, value)}")
    return found


def _enclosed(rng: Random, left: str, parts: list[str], right: str) -> str:
    body = "".join(f"{_gap(rng)}{part}{_gap(rng)}," for part in parts)
    if body and rng.random() < 0.6:
        body = body[:-1]
    return f"{left}{body}{_gap(rng)}{right}"


def _text(rng: Random, text: str) -> str:
    style = rng.random()
    if style < 0.3 and "'" not in text and text.isprintable():
        return f"'{text}'"
    if style < 0.5 and "'''" not in text and "\x1b" not in text:
        return f"'''\n{text}'''" if not text.endswith("'") else f"'''{text}'''"
    if style < 0.7:
        inner = "".join(char if char in "\n\t" else _escaped(rng, char) for char in text)
        return f'"""{rng.choice(("", chr(10)))}{inner}"""' if not inner.startswith("\n") else f'"""\n{inner}"""'
    return _basic(rng, text)
