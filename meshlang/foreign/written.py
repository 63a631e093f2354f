"""What importing gives: a spec as tables, and the text that they are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

#: Tables of a spec by their headers; "" has the keys before the first.
Tables = dict[str, dict[str, object]]


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A spec's text, and for how many ranks it is: None where `"rest"` leaves it open.

    Attributes:
        card: the text of the card that the spec names by a file, where there is none yet.
        stem: of the names of their files.
    """

    text: str
    ranks: int | None = None
    card: str | None = None
    stem: str = "spec"


def text_of(tables: Tables) -> str:
    """The tables as a spec, spaced as `meshlang fmt` spaces them."""
    return "\n".join("".join(_rows(header, table)) for header, table in tables.items() if table)


def _rows(header: str, table: Mapping[str, object]) -> Iterator[str]:
    if header:
        yield f"[{header}]\n"
    for key, value in table.items():
        yield f"{key} = {_spelled(value)}\n"


def _spelled(value: object) -> str:
    """A value in TOML; JSON's strings, numbers and arrays are TOML's too."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_spelled(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value)
