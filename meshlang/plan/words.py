"""Words that the findings of the plan share."""

from __future__ import annotations

from collections.abc import Iterable

from ..diagnostics import Edit, Help
from ..language.spec import PlaceRule
from ..source import Source, Span


def rename(span: Span, guess: str | None) -> tuple[Help, ...]:
    """Offer a near name in place of what stands at `span`, in quotes where it needs them."""
    if guess is None:
        return ()
    quoted = span.text[:1] in ("'", '"')
    text = f'"{guess}"' if quoted or not guess.replace("_", "").replace("-", "").isalnum() else guess
    return (Help(text=f"did you mean `{guess}`?", edits=(Edit(span=span, text=text),)),)


def may_say(rule: PlaceRule, value: str, spec: Source) -> Help:
    """Offer another value for a rule: on its line, in a file that the spec includes, or on the command line."""
    edit, source = Edit(span=rule.span, text=value), rule.span.source
    if source.name.startswith("--"):
        return Help(text=f"`{source.name}` may say `{edit.applied().text}`", edits=(edit,))
    where = f"line {rule.key.line}" if source.name == spec.name else f"line {rule.key.line} of {source.name}"
    return Help(text=f"{where} may say `{rule.key.text} = {value}`", edits=(edit,))


def left_out(key: Span, value: Span) -> Help:
    """Offer to drop a line of a key and a value."""
    source = key.source
    end = min(value.end + 1, len(source.text))
    return Help(text="leave the line out", edits=(Edit(span=source.span(key.start, end), text=""),))


def said(rule: PlaceRule) -> str:
    """A rule in words: `heads` on `tp`."""
    return f"`{rule.name}` {cut_over(axis.value for axis in rule.axes)}"


def cut_over(axes: Iterable[str]) -> str:
    """Axes that cut a dimension, outer first: on `cp` x `tp`."""
    words = tuple(axes)
    return "on " + " x ".join(f"`{axis}`" for axis in words) if words else "whole"


def listed(words: Iterable[str]) -> str:
    """`a`, `b` and `c`."""
    shown = [f"`{word}`" for word in words]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else ""


def own_last(rule: PlaceRule) -> tuple[bool, int]:
    """Sorts presets first, then by place: a finding is at the last one, a user's own where there is one."""
    return not rule.preset, rule.span.start
