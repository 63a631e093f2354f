"""Diagnostic -> full text | one line | JSON | an annotation of GitHub Actions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from .diagnostics import Diagnostic, Help, Label
from .excerpt import Paint, brief, cut, excerpt, safe
from .source import Source, Span

Form = Literal["text", "short", "json", "github"]

_COLORS = {"error": "1;31", "main": "1;31", "other": "1;34", "gutter": "1;34", "note": "1;36", "help": "1;32"}
#: How the names of texts begin that lie in no file of the user's.
_NO_FILE = ("--", "preset:", "card:")
#: Of workflow commands (actions/toolkit, core/src/command.ts).
_ESCAPES = {"%": "%25", "\r": "%0D", "\n": "%0A"}


def render(diagnostics: Iterable[Diagnostic], form: Form = "text", color: bool = False) -> str:
    """Findings for a reader (text), for a list (short), for a program (json) or for a workflow's log (github)."""
    found = list(diagnostics)
    if form == "json":
        return json.dumps([_json(each) for each in found], indent=2) + "\n"
    if form == "short":
        return "".join(_short(each) + "\n" for each in found)
    if form == "github":
        return "".join(_github(each) + "\n" for each in found)
    paint = _painted if color else _plain
    return "\n".join("\n".join(_text(each, paint)) + "\n" for each in found)


def _plain(kind: str, text: str) -> str:
    return text


def _painted(kind: str, text: str) -> str:
    return f"\x1b[{_COLORS[kind]}m{text}\x1b[0m"


def _short(found: Diagnostic) -> str:
    return f"{safe(str(found.label.span))}: error[{found.code}]: {brief(found.message)}"


def _text(found: Diagnostic, paint: Paint) -> list[str]:
    """The lines of one finding."""
    labels = (found.label, *found.labels)
    gutter = max(2, *(len(str(label.span.line)) for label in labels))
    rows = [f"{paint('error', f'error[{found.code}]')}: {brief(found.message)}"]
    for source in dict.fromkeys(label.span.source for label in labels):
        here = [label for label in labels if label.span.source == source]
        arrow = "-->" if here[0] is found.label else ":::"
        rows.append(f" {paint('gutter', arrow)} {safe(str(here[0].span))}")
        rows += excerpt(here, found.label, gutter, paint)
    for note in found.notes:
        rows += _paragraph("note", note, paint)
    for offer in found.help:
        rows += _paragraph("help", filled(offer), paint)
    return rows


def _paragraph(kind: str, text: str, paint: Paint) -> list[str]:
    """`note: text`; further lines stand under the text."""
    first, *more = text.split("\n")
    return [f"{paint(kind, kind)}: {brief(first)}", *(f"      {brief(line)}" for line in more)]


def filled(offer: Help) -> str:
    """A help's text with the values that were kept in place of `{}`."""
    return offer.text.replace("{}", listed(offer.values)) if offer.values else offer.text


def listed(values: Sequence[str]) -> str:
    """`1, 2 or 4`."""
    return " or ".join(filter(None, (", ".join(values[:-1]), *values[-1:])))


def _github(found: Diagnostic) -> str:
    """One workflow command, on one line; a finding over several lines is marked at its first.

    Where the text is no file, such as an item of `--set`, there is no place to mark and the message says it.
    """
    span = found.label.span
    line, column = span.source.position(span.start)
    end_line, end_column = span.stop
    place = {"file": span.source.name, "line": line, "endLine": end_line}
    if end_line == line:
        place |= {"col": column, "endColumn": end_column}
    at_file = not span.source.name.startswith(_NO_FILE)
    properties = {**(place if at_file else {}), "title": f"meshlang: {found.code}"}
    rows = [found.message if at_file else f"{span}: {found.message}"]
    rows += [f"{label.span}: {label.text}" for label in (found.label, *found.labels) if label.text]
    rows += [f"note: {note}" for note in found.notes]
    rows += [f"help: {filled(offer)}" for offer in found.help]
    pairs = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items())
    message = "\n".join(rows)
    return f"::error {pairs}::{_escaped(cut(message))}"


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def _escaped(text: str) -> str:
    """A text of many lines as one, in the escapes of workflow commands."""
    return "".join(_ESCAPES.get(char) or safe(char) for char in text)


def _json(found: Diagnostic) -> dict[str, Any]:
    """One finding as plain data; lines and columns count from 1, and the end is just past the last character."""
    return {
        "code": found.code,
        "message": found.message,
        **_place(found.label.span),
        "labels": [_label(label) for label in (found.label, *found.labels)],
        "notes": list(found.notes),
        "help": [
            {"text": filled(offer), "edits": [{**_place(edit.span), "text": edit.text} for edit in offer.edits]}
            for offer in found.help
        ],
    }


def _label(label: Label) -> dict[str, Any]:
    return {**_place(label.span), "text": label.text}


def _place(span: Span) -> dict[str, Any]:
    source: Source = span.source
    line, column = source.position(span.start)
    end_line, end_column = source.position(span.end)
    return {"file": source.name, "line": line, "column": column, "end_line": end_line, "end_column": end_column}
