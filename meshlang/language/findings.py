"""The reader's findings, one function each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..diagnostics import Diagnostic, Edit, Help, Label
from ..near import near
from ..source import Span
from .shape import Rows, Schedule, Shape, Strategies, Table, expected
from .tables import ROOT
from .toml import Node

#: Top-level names that hold tables.
TABLES = frozenset(
    name for name, key in ROOT.keys.items() if isinstance(key.shape, Table | Rows | Strategies | Schedule)
)

#: What others call a type of numbers.
_USUAL = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "half": "float16"}


def place(node: Node) -> Span:
    """The key of a node, or the node where it has none."""
    return node.key or node.span


def found(node: Node) -> str:
    """A value in words."""
    value = node.value
    if isinstance(value, (dict, tuple)):
        return "a table" if isinstance(value, dict) else "an array"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f'the string "{value}"' if len(value) <= 40 else f"a string of {len(value)} characters"
    if isinstance(value, int):
        return f"the whole number {value}"
    return f"the number {value}" if isinstance(value, float) else f"the date {value}"


def offer(text: str, span: Span, *fixes: str) -> Help:
    """A help whose edits replace one span."""
    return Help(text=text, edits=tuple(Edit(span=span, text=fix) for fix in fixes))


def wrong_type(name: str, shape: Shape, node: Node) -> Diagnostic:
    """A value of another type than the key takes."""
    return Diagnostic(
        code="wrong-type",
        message=f"`{name}` takes {expected(shape)}",
        label=Label(span=node.span, text=f"{found(node)}"),
        help=_converted(shape, node),
    )


def _converted(shape: Shape, node: Node) -> tuple[Help, ...]:
    """The same value written in the type that is taken, where that is plain."""
    kind = type(shape).__name__
    if kind in ("Names", "ListOf") and isinstance(node.value, str):
        return (offer("write an array", node.span, f"[{node.span.text}]"),)
    if kind in ("Whole", "AxisSize", "Version") and isinstance(node.value, str) and node.value.isdecimal():
        return (offer("write a number, without quotes", node.span, node.value),)
    if kind in ("Whole", "AxisSize") and isinstance(node.value, float) and node.value.is_integer():
        return (offer("write a whole number", node.span, str(int(node.value))),)
    if kind == "Rows" and isinstance(node.value, dict) and node.span.text.startswith("["):
        return (offer("write two brackets", node.span, f"[{node.span.text}]"),)
    if kind == "Truth" and node.value in ("true", "false"):
        return (offer("write it without quotes", node.span, node.value),)
    if kind == "Bytes" and type(node.value) is int:
        return (offer("write a unit", node.span, f'"{node.value} B"'),)
    return ()


def bad_value(message: str, node: Node, text: str = "", *, help: Sequence[Help] = (), **more: Any) -> Diagnostic:
    """A value of the right type that is not among those allowed."""
    return Diagnostic(
        code="bad-value", message=message, label=Label(span=node.span, text=text), help=tuple(help), **more
    )


def near_words(word: str, known: Iterable[str], span: Span) -> tuple[Help, ...]:
    """A help that offers the nearest known word, in quotes; `bf16` is another name of one."""
    words = list(known)
    usual = _USUAL.get(word)
    meant = usual if usual in words else near(word, words)
    return () if meant is None else (offer(f'"{meant}" is near', span, f'"{meant}"'),)


def unknown_key(where: str, name: str, node: Node, known: Sequence[str], meant: str | None) -> Diagnostic:
    """A key that its table does not have."""
    table = where == "the spec" and isinstance(node.value, dict)
    message = f"there is no table `[{name}]`" if table else f"{where} has no key `{name}`"
    fits = [key for key in known if table == (key in TABLES)] if where == "the spec" else known
    return Diagnostic(
        code="unknown-table" if table else "unknown-key",
        message=message,
        label=Label(span=place(node), text=f"`{meant}` is near" if meant else ""),
        notes=(f"known: {', '.join(fits)}",) if known else (),
        help=(offer(f"write `{meant}`", place(node), meant),) if meant else (),
    )


def empty_table(where: str, what: str, node: Node) -> Diagnostic:
    """A table that must set something and sets nothing."""
    label = Label(span=_first_line(node.span), text=f"at least one {what} is set here")
    return Diagnostic(code="missing-key", message=f"{where} names no {what}", label=label)


def missing_key(where: str, name: str, says: str, node: Node, fix: Edit | None = None) -> Diagnostic:
    """A key that must be there and is not."""
    return Diagnostic(
        code="missing-key",
        message=f"{where} lacks `{name}`",
        label=Label(span=_first_line(node.span), text=f"`{name}`: {says}"),
        help=(Help(text=f"add `{fix.text.strip()}`", edits=(fix,)),) if fix else (),
    )


def _first_line(span: Span) -> Span:
    end = span.source.text.find("\n", span.start, span.end)
    return span if end < 0 else span.source.span(span.start, end)


def repeated(name: str, word: str, first: Span, second: Span) -> Diagnostic:
    """An axis named twice in one array."""
    return Diagnostic(
        code="axis-repeated",
        message=f"`{name}` names `{word}` twice",
        label=Label(span=second, text="and again here"),
        labels=(Label(span=first, text="first here"),),
    )


def unknown_plugin(kind: str, name: str, span: Span, known: Sequence[str], *, quoted: bool) -> Diagnostic:
    """A strategy or schedule that no installed distribution brings."""
    meant = near(name, known)
    fix = f'"{meant}"' if quoted else str(meant)
    return Diagnostic(
        code=f"unknown-{kind}",
        message=f"no {kind} `{name}` is installed",
        label=Label(span=span),
        notes=(f"installed: {', '.join(known) or 'none'}",),
        help=(offer(f"`{meant}` is near", span, fix),) if meant else (),
    )


def plugin_broken(message: str, span: Span) -> Diagnostic:
    """A plugin that cannot be used, through no fault of the spec."""
    return Diagnostic(code="plugin-broken", message=message, label=Label(span=span, text="asked for here"))
