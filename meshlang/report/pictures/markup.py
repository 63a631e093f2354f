"""Markup that cannot be broken out of: whatever is no Markup yet is escaped when it is put in.

Names in a spec are anybody's text. A tag takes its attributes and children as they are and writes
them so that they stay text, in HTML and in SVG alike; nothing else here writes an angle bracket.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

#: What XML 1.0 has no way to write.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
#: Tags of HTML that have no end.
_VOID = {"br", "input", "meta", "hr"}


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def safe(text: object) -> Markup:
    """Markup as it is, anything else as text."""
    if isinstance(text, Markup):
        return text
    return Markup(escape(_CONTROL.sub("\ufffd", str(text)), quote=True))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """`<name attr="...">children</name>`; `class_` is class, `data_r` is data-r, None is left out."""
    parts = [name]
    for key, value in attributes.items():
        if value is not None:
            parts.append(f'{key.rstrip("_").replace("_", "-")}="{safe(_number(value))}"')
    head = " ".join(parts)
    inner = "".join(safe(child) for child in children)
    return Markup(
        f"<{head}>" if name in _VOID else f"<{head}/>" if not inner and name in _SHORT else f"<{head}>{inner}</{name}>"
    )


#: Tags of SVG that are written in one where they are empty.
_SHORT = {"rect", "path", "line", "circle"}


def joined(parts: Iterable[object], between: str = "") -> Markup:
    """Several as one."""
    return Markup(between.join(safe(part) for part in parts))


def _number(value: object) -> object:
    """Numbers to a hundredth, without a tail of zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
