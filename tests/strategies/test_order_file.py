"""`schedule = "csv"`: an order from a file, and where its findings stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from meshlang_strategies.order_file import OrderFile

from meshlang.compiler import Request, check, compile
from meshlang.diagnostics import Diagnostic
from meshlang.registry import Plugins, Registry
from meshlang.source import Source

CARD = Path(__file__).parents[2] / "models" / "llama" / "card.toml"
PLUGINS = Plugins(schedules=Registry("meshlang.schedules", extra={"csv": OrderFile}))
V = (Path(__file__).parent / "v.csv").read_text()


def _request(folder: Path, order: str | None, more: str = "") -> Request:
    if order is not None:
        (folder / "order.csv").write_bytes(order.encode())
    text = f"""\
meshlang = 1
model = "{CARD}#tiny"
include = ["preset:fsdp", "preset:whole_weights"]
[mesh]
pp = 2
dp = 2
[pipeline]
schedule = "csv"
microbatches = 2
file = "order.csv"
{more}"""
    return Request(source=Source(name=str(folder / "spec.toml"), text=text), plugins=PLUGINS)


def _found(folder: Path, order: str | None, more: str = "") -> list[Diagnostic]:
    return list(check(_request(folder, order, more)))


def test_the_plan_has_the_order(tmp_path: Path) -> None:
    """The file beside the spec gives stages, their places and each rank's actions; empty cells say nothing."""
    plan = compile(_request(tmp_path, V.replace("\n", "\r\n")))
    assert [stage.coordinate for stage in plan.stages] == [0, 1, 1, 0]
    assert plan.pipeline is not None
    assert plan.pipeline.chunks == 2
    assert plan.pipeline.order[0] == ("0F0", "0F1", "3F0", "3B0", "0B0", "3F1", "3I1", "0B1", "3W1")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The finding is at the key that names the file."""
    assert [(each.code, each.label.span.text) for each in _found(tmp_path, None)] == [("order-file", '"order.csv"')]


def test_bytes_that_are_no_order(tmp_path: Path) -> None:
    """Whatever is in the file, there are findings and no traceback."""
    for text in ("", "\x00", "a,b\nc", "0F0\n\n\n1F0", "9" * 50 + "F0\n1F0", '"0F0"\n1F0', "0F0,0B0\n1F0,1B0"):
        assert {each.code for each in _found(tmp_path, text)} <= {"order-file", "too-many-stages"}, text
        assert _found(tmp_path, text), text


@pytest.mark.parametrize(
    ("old", "new", "at", "message"),
    [
        ("3W1", "3X1", "3X1", "`3X1` is no action, such as 0F0, 0B0, 0I0 or 0W0"),
        ("0F1,,", "0F1,0F1,", "0F1", "0F1 is there more than once"),
        ("3F0", "1F0", "1F0", "stage 1 is on rank 0 and on rank 1"),
        ("2F0", "2F5", "2F5", "2F5 is of microbatch 5, and there are 2"),
    ],
)
def test_findings_stand_in_the_file(tmp_path: Path, old: str, new: str, at: str, message: str) -> None:
    """What is wrong with an action is said at its cell."""
    found = _found(tmp_path, V.replace(old, new, 1))
    assert [(each.message, each.label.span.text) for each in found] == [(message, at)]
    assert found[0].label.span.source.name.endswith("order.csv")


def test_late_weights_keep_what_is_gathered(tmp_path: Path) -> None:
    """An order with gradients of weights apart wants weights that stay."""
    more = '[store]\nover = ["dp"]\nafter_forward = "free"\n'
    assert [each.code for each in _found(tmp_path, V, more)] == ["schedule-store"]
    line = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    assert _found(tmp_path, line, more) == []
