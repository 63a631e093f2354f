"""Fixes that were tried, and those that were not kept."""

from __future__ import annotations

from meshlang.diagnostics import Diagnostic, Edit, Help, Label
from meshlang.fixes import MOST_TRIED, Found, tried
from meshlang.source import Source

SOURCE = Source(name="spec", text="tp = 8")


def finding(message: str, *fixes: str) -> Diagnostic:
    """A finding at the size, with a help whose alternatives put one of `fixes` there."""
    span = SOURCE.span(5, 6)
    help_ = Help(text="may be {}", edits=tuple(Edit(span=span, text=fix) for fix in fixes), values=fixes)
    return Diagnostic(code="word", message=message, label=Label(span=span), help=(help_,) if fixes else ())


def offered(found: Found, after: dict[str, Found]) -> list[tuple[str, ...]]:
    """For each finding the values that are offered, when a text gives what `after` says."""
    return [each.help[0].values if each.help else () for each in tried(found, lambda edit: after[edit.applied().text])]


def test_only_what_mends_is_offered() -> None:
    """Of two alternatives one leaves the finding, and the other alone is offered."""
    before = Found(findings=(finding("one", "2", "3"),))
    after = {"tp = 2": Found(), "tp = 3": Found(findings=(finding("one"),))}
    assert offered(before, after) == [("2",)]


def test_another_finding_is_no_mending() -> None:
    """With a finding of the same step in place of its own, a fix is dropped; with others left as they were, kept."""
    before = Found(findings=(finding("one", "2"), finding("two")))
    assert offered(before, {"tp = 2": Found(findings=(finding("three"),))}) == [(), ()]
    assert offered(before, {"tp = 2": Found(findings=(finding("two"),))}) == [("2",), ()]


def test_a_later_step_is_better() -> None:
    """A fix with which the next step finds something mends; one that an earlier step stumbles on does not."""
    before = Found(findings=(finding("one", "2"),), step=1)
    assert offered(before, {"tp = 2": Found(findings=(finding("three"),), step=2)}) == [("2",)]
    assert offered(before, {"tp = 2": Found(findings=(), step=0)}) == [()]


def test_fixes_are_tried_up_to_a_number() -> None:
    """Of more findings than are tried, none has a fix."""
    many = tuple(finding(str(number), "2") for number in range(MOST_TRIED + 1))
    assert not any(offered(Found(findings=many), {}))
    few = Found(findings=many[:MOST_TRIED])
    assert all(offered(few, {"tp = 2": Found(step=1)}))
