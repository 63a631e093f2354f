"""Parts that every picture is made of, and a picture as a file of its own."""

from __future__ import annotations

from dataclasses import dataclass

from .markup import Markup, joined, tag
from .palette import alone

#: Widths of a character in the two fonts at 11 pixels, about.
MONO, SANS = 6.65, 5.9


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One picture: a name for its file, words for those who do not see it, and what is drawn."""

    name: str
    title: str
    width: float
    height: float
    body: Markup

    def svg(self, *, style: bool = False) -> Markup:
        """The element; with `style`, complete as a file."""
        head = tag("style", Markup(alone())) if style else Markup("")
        paper = tag("rect", width=self.width, height=self.height, fill="#ffffff") if style else Markup("")
        return tag(
            "svg",
            tag("title", self.title),
            head,
            paper,
            self.body,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {self.width:.0f} {self.height:.0f}",
            width=round(self.width),
            height=round(self.height),
            role="img",
        )

    def file(self) -> str:
        """The text of a file of its own."""
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{self.svg(style=True)}\n'


def words(x: float, y: float, text: object, class_: str | None = None, **attributes: object) -> Markup:
    """A line of text, its base at y."""
    return tag("text", text, x=float(x), y=float(y), class_=class_, **attributes)


def box(x: float, y: float, width: float, height: float, class_: str, *inside: object, **attributes: object) -> Markup:
    """A rectangle."""
    sizes = {"x": float(x), "y": float(y), "width": float(width), "height": float(height)}
    return tag("rect", *inside, **sizes, class_=class_, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, class_: str = "axis") -> Markup:
    """A straight line."""
    return tag("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)


def cut(text: str, width: float, each: float = SANS) -> str:
    """Text that fits a width, its end left out where it does not."""
    most = max(1, int(width / each))
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def legend(x: float, y: float, entries: list[tuple[str, str]]) -> Markup:
    """Small boxes with words, side by side."""
    parts = []
    for class_, text in entries:
        parts += [box(x, y - 9, 11, 11, class_), words(x + 16, y, text, "quiet")]
        x += 34 + SANS * len(text)
    return joined(parts)


def ticks(most: float, about: int = 8) -> list[float]:
    """Round numbers from 0 up to `most`."""
    if most <= 0:
        return [0.0]
    step = 10.0 ** len(str(int(most)))
    for factor in (0.5, 0.4, 0.5) * 24:  # 10 -> 5 -> 2 -> 1 -> 0.5 ...
        if most / step >= about / 2:
            break
        step *= factor
    return [step * i for i in range(int(most / step + 1e-9) + 1)]
