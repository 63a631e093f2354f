"""What a launch prints of the logs of others."""

from __future__ import annotations

import logging

import pytest

from meshlang.runtime.quiet import unheard


def test_a_recipe_that_is_only_read_prints_no_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A warning that no handler takes is printed by Python, and not while a recipe is read."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with unheard():
        logging.getLogger("torchtitan").warning("has no effect")
    assert capsys.readouterr().err == ""
    logging.getLogger("torchtitan").warning("is heard")
    assert capsys.readouterr().err == "is heard\n"
