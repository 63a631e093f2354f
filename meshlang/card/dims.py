"""The dims of a tensor as a card writes them: names, and in parentheses the factors of one dim."""

from __future__ import annotations

from .model import Factors


def parse_dims(text: str) -> tuple[Factors, ...]:
    """`"(heads head_dim) embed"` -> `(("heads", "head_dim"), ("embed",))`.

    Raises:
        ValueError: parentheses do not pair, or a word is no name.
    """
    dims: list[Factors] = []
    group: list[str] | None = None
    for word in text.replace("(", " ( ").replace(")", " ) ").split():
        if word == "(" and group is None:
            group = []
        elif word == ")" and group:
            dims.append(tuple(group))
            group = None
        elif word.isidentifier() and group is None:
            dims.append((word,))
        elif word.isidentifier() and group is not None:
            group.append(word)
        else:
            raise ValueError(f'`{text}`: expected names and pairs of parentheses, such as "(heads head_dim) embed"')
    if group is not None:
        raise ValueError(f"`{text}`: a parenthesis is open")
    return tuple(dims)


def dims_text(dims: tuple[Factors, ...]) -> str:
    """parse_dims(dims_text(dims)) == dims."""
    return " ".join(factors[0] if len(factors) == 1 else f"({' '.join(factors)})" for factors in dims)


def named_twice(dims: tuple[Factors, ...]) -> str | None:
    """The first name that is outermost, and so may be cut, in two dims; or None."""
    seen: set[str] = set()
    for factors in dims:
        if factors[0] in seen:
            return factors[0]
        seen.add(factors[0])
    return None
