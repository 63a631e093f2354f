"""What the compiler says of a request, and what every finding holds to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from meshlang.cli import codes
from meshlang.compiler import Request, compile
from meshlang.diagnostics import Bag, Diagnostic, SpecError
from meshlang.language.load import machines
from meshlang.language.toml import scan
from meshlang.render import render

PAGES = frozenset(codes())


def outcomes(request: Request) -> Iterator[tuple[Diagnostic, ...]]:
    """The findings of a spec, then those of it on each of its machines."""
    yield found_in(request)
    root = scan(request.source, Bag())
    for name in machines(root) if root is not None else ():
        yield found_in(replace(request, on=name))


def found_in(request: Request) -> tuple[Diagnostic, ...]:
    """Findings; none when there is a plan. Anything else that is raised is a failure."""
    try:
        plan = compile(request)
    except SpecError as error:
        return error.diagnostics
    assert plan.state_bytes is not None
    return ()


def hold(found: Sequence[Diagnostic]) -> None:
    """Findings are in order to be shown: a known code, a place in its source, words in every form."""
    for each in found:
        assert each.code in PAGES, each.code
        for label in (each.label, *each.labels):
            assert 0 <= label.span.start <= label.span.end <= len(label.span.source.text), each
    for form in ("text", "short", "json"):
        assert render(found, form)  # pyright: ignore[reportArgumentType]
